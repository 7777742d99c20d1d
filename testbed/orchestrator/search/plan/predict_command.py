"""`longhaul predict`: composes a run like `run`, gets its profiles, and hands both to the analysis, in a process of its
own. Nothing is emulated, so the machine need not be able to."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.core.device.profile import read_profile
from testbed.core.device.timelines.timeline_file import is_timeline
from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.files import read_object
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.spec.run_spec import PROCESSOR, RunSpec
from testbed.core.user_files.json_file import read_json
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine.clone import RUNS_ROOT, environment
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.run.dilation.calibration import calibrate
from testbed.orchestrator.run.questions.plugins import check_parts
from testbed.orchestrator.search.plan import simulated_run
from testbed.orchestrator.terminal.terminal import say


def predict(
    overrides: Sequence[str],
    runs_root: Path,
    *,
    profile: Path | None = None,
    run_id: str | None = None,
    library: str | None = None,
    keep: bool = False,
    as_json: bool = False,
) -> int:
    """Print the prediction and return the exit status.

    Args:
        profile: in place of measuring, what `longhaul profile` wrote: the device's times and what is sent.
        run_id: of a run that was made; its profiles are taken, and its spec where there are no overrides.
        library: the one of real machines, whose closed form all-reduces take.
        keep: make a run directory of it, of kind "simulated".

    Raises:
        InputError: with every fault at once.
    """
    if profile is not None and run_id is not None:
        raise InputError(f"--profile {profile} --run {run_id}: give one of the two")
    made = None if run_id is None else _record(runs_root, run_id)
    if made is not None and not overrides:
        question = {"spec": made["spec"], "cpu": made["cpu_profile"], "device": made["device_profile"]}
    else:
        spec = _spec(overrides, runs_root)
        question = {"spec": spec.to_json(), **_profiles(spec, profile, made)}
    if library is not None:
        question["library"] = library
    with tempfile.TemporaryDirectory() as folder:
        answer, began_s = Path(folder) / "prediction.json", time.monotonic()
        flags = [*(["--json"] if as_json else []), "--output", str(answer)]
        command = [sys.executable, "-m", "testbed.analysis", "predict", *flags, "-"]
        done = subprocess.run(command, input=json.dumps(question), text=True, env=environment(), check=False)
        if keep and done.returncode == EXIT_COMPLETED:
            wall_s = time.monotonic() - began_s
            run = simulated_run.keep(question, json.loads(answer.read_text()), runs_root, wall_s=wall_s)
            say(f"kept as {run.path}")
    return done.returncode


def question_of(overrides: Sequence[str]) -> dict[str, Any]:
    """{"spec", "cpu", "device"} of what `overrides` ask for, with this machine's profiles.

    Raises:
        InputError: with every fault at once.
    """
    spec = _spec(overrides, RUNS_ROOT)
    return {"spec": spec.to_json(), **_profiles(spec, None, None)}


def _spec(overrides: Sequence[str], runs_root: Path) -> RunSpec:
    """With the dilation that was given, or none: what is predicted is not slowed down."""
    resolved = resolve(overrides, emulated=False, runs_root=runs_root)
    faults, start_hash = [*resolved.faults], None
    if resolved.stand_in is not None and resolved.stand_in.program == "training":
        try:
            start_hash = check_parts(resolved.stand_in).get("start_hash")
        except InputError as error:
            faults += error.faults
    if resolved.stand_in is not None and (asked := resolved.stand_in.accelerator) != PROCESSOR:
        faults.append(f"accelerator={asked}: how long steps take there is known only as they run; leave it out")
    if faults:
        raise InputError(*dict.fromkeys(faults))
    return dataclasses.replace(resolved.spec, auto_dilation=False, start_hash=start_hash)


def _profiles(spec: RunSpec, profile: Path | None, made: dict[str, Any] | None) -> dict[str, Any]:
    """{"cpu", "device"}: what is sent, and how long computing takes."""
    if profile is not None:
        if is_timeline(read_json(profile)):
            raise InputError(
                f"--profile {profile}: is a timeline, which does not say what is sent; give it as a device:"
                f" device=profile device.file={profile}"
            )
        found = read_profile(profile).to_json()
        return {"cpu": found, "device": found}
    if made is not None:
        return {"cpu": made["cpu_profile"], "device": made["device_profile"]}
    _, measured = calibrate(spec, say, give_to_caller)
    if measured is None:
        raise InputError(f"workload={spec.workload.name}: only our own training can be simulated")
    return {"cpu": measured.cpu.to_json(), "device": measured.device.to_json()}


def _record(runs_root: Path, run_id: str) -> dict[str, Any]:
    """Spec and profiles of a run.

    Raises:
        InputError: there is no such run, or it has none.
    """
    run = RunDir(runs_root / run_id)
    try:
        if not RUN_ID.fullmatch(run_id):
            raise ValueError("not the id of a run")
        provenance = read_object(run.provenance)
        return {
            "spec": read_object(run.spec),
            "cpu_profile": provenance["cpu_profile"],
            "device_profile": provenance["device_profile"],
        }
    except KeyError as error:
        raise InputError(f"--run {run_id}: it has no {error.args[0]}; only our own training is profiled") from error
    except (OSError, ValueError) as error:
        raise InputError(f"--run {run_id}: {error}") from error
