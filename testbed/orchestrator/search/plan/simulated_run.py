"""A prediction as a run directory of kind "simulated", so that tables and pages find it where they find runs.

It has a spec, a provenance with the profiles and the prediction itself, and a summary of one step once steps are alike.
Nothing happened, so there are no events, no measured links and no logs but an empty folder. Its verdict is whether the
prediction is of the kind that the simulator was validated on: `valid` inside that range, `suspect` outside.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.core.record.run_directory import RunDir, new_run_id, write_json
from testbed.core.record.used_files import entries, version
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.observation.summary import summarise
from testbed.orchestrator.run.seal import analyse
from testbed.orchestrator.run_store.used import named_files
from testbed.orchestrator.search.plan.analysis_client import ask_analysis

KIND = "simulated"
TIME_LIMIT_S = 300.0
_MAX_NAME_CHARACTERS = 100


def ask(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the analysis predicts for {"spec", "cpu", "device"}.

    Raises:
        InputError: it is none that can be predicted; with every fault.
        RunError: no answer came.
    """
    found: dict[str, Any] = ask_analysis("predict", "--json", "-", question=question, time_limit_s=TIME_LIMIT_S)
    return found


def keep(question: Mapping[str, Any], found: Mapping[str, Any], runs_root: Path, *, wall_s: float) -> RunDir:
    """Write the run directory of a prediction. It appears under its name when all of it is there.

    Args:
        question: {"spec", "cpu", "device"}.
        found: what was predicted for it.
        wall_s: how long that took.

    Raises:
        InputError: `runs_root` takes no directory.
    """
    spec = RunSpec.from_json(question["spec"])
    run_id = new_run_id(spec.topo, spec.strategy.name, spec.compressor.name, spec.hash)
    try:
        is_new = not runs_root.exists()
        runs_root.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(dir=runs_root, prefix=".predicted."))  # what begins with a dot is no run yet
    except OSError as error:
        raise InputError(f"--runs {runs_root}: no run directory can be made there: {error}") from error
    try:
        run = RunDir.create(hidden, _free(runs_root, run_id))
        _write(run, spec, question, found, wall_s)
        kept = runs_root / run.run_id
        os.rename(run.path, kept)
    finally:
        shutil.rmtree(hidden)
    give_to_caller(runs_root if is_new else kept)
    return RunDir(kept)


def _free(runs_root: Path, run_id: str) -> str:
    """The name, or where another run of this second has it, with a suffix, as `RunDir.create` gives."""
    names = (run_id, *(f"{run_id}.{attempt}" for attempt in range(1, _MAX_NAME_CHARACTERS)))
    return next(name for name in names if not (runs_root / name).exists())


def _write(run: RunDir, spec: RunSpec, question: Mapping[str, Any], found: Mapping[str, Any], wall_s: float) -> None:
    write_json(run.spec, {**spec.to_json(), "code_hash": provenance.code_hash(simulated=True)})
    profiles = {"cpu_profile": question["cpu"], "device_profile": question["device"]}
    write_json(run.provenance, {**provenance.collect(), **profiles, "prediction": found})
    summary = _summary(run, question, found, wall_s)
    summary["reasons"] = [*summary["reasons"], *analyse(run, summary)]
    write_json(run.summary, summary)


def _summary(run: RunDir, question: Mapping[str, Any], found: Mapping[str, Any], wall_s: float) -> dict[str, Any]:
    """Of one step; what the simulator does not know, such as a spread, is null."""
    standing = found["validation"]
    reasons = [f"simulated, unlike what was validated: {why}" for why in standing["outside_by"]]
    if not standing["configurations"]:
        reasons = ["simulated, and validated on nothing: there is no calibration"]
    verdict = "valid" if standing["inside"] else "suspect"
    summary = summarise(run, status="completed", verdict=verdict, reasons=reasons, wall_s=wall_s, kind=KIND)
    step_s, device = found["step_s"], question["device"]
    summary |= {
        "steps": 1,
        "time_s": step_s,
        "step_time_s": {"mean": step_s, "p50": step_s, "p95": None, "exchange_p50": None},
    }
    summary["phase_s"] |= {
        "forward": device["forward_s"],
        "backward": device["backward_s"],
        "optimizer": device["optimizer_s"] + found["work_s"],
        "exposed_communication": found["exposed_communication_s"],
    }
    wan_bytes = found["wan_bytes_step"] if found["wan_links"] else None
    payload_bytes, dense_bytes = found["payload_bytes_step"], found["dense_bytes_step"]
    summary["bytes"] |= {"payload": payload_bytes, "wire_wan": wan_bytes, "dense": dense_bytes}
    summary["compression_ratio"] = dense_bytes / payload_bytes if payload_bytes else None
    if used := entries(named_files(RunSpec.from_json(question["spec"]))):
        summary |= {"used_files": used, "user_code": version(used)}
    return summary
