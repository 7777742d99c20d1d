"""A whole run as one point of a benchmark: the command itself, and what its record says."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.device.profile import Profile
from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, EXIT_INVALID, RunError
from testbed.core.record.run_directory import RunDir, new_run_id, write_json
from testbed.core.record.spoiled_steps import SpoiledSteps
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.clone import CLONE, environment

TIME_LIMIT_S = 400.0
_STOP_S = 60.0


class Refused(RunError):
    """A run that was refused before anything was built."""


@dataclass(frozen=True)
class WholeRun:
    """The record of one run, without its first step, in which connections warm up."""

    spec: dict[str, Any]
    summary: dict[str, Any]
    provenance: dict[str, Any]
    by_step: dict[int, dict[int, dict[str, Any]]]
    """Of each step its events by rank."""
    model: dict[str, Any]
    """What rank 0 says of its model and buckets."""
    notes: list[dict[str, Any]]
    """What a strategy has changed by itself: "tuning" events."""
    left_out: frozenset[int] = frozenset()
    """Steps that figures leave out, since another machine or a foreign process took cores meanwhile."""

    @property
    def steps(self) -> list[dict[int, dict[str, Any]]]:
        """Events by rank of each step that is not left out."""
        return [ranks for step, ranks in self.by_step.items() if step not in self.left_out]

    @property
    def device(self) -> Profile:
        return Profile.from_json(self.provenance["device_profile"])

    @property
    def cpu(self) -> Profile:
        return Profile.from_json(self.provenance["cpu_profile"])

    def median(self, key: str) -> float:
        """Over steps, of the mean over ranks."""
        return statistics.median(statistics.fmean(e[key] for e in ranks.values()) for ranks in self.steps)

    def phase_s(self, name: str) -> float:
        """Likewise."""
        return statistics.median(statistics.fmean(e["phase_s"][name] for e in ranks.values()) for ranks in self.steps)

    @property
    def late_share(self) -> float:
        """As the verdict has it, without the first step."""
        late_s = sum(max(e["late_s"] for e in ranks.values()) for ranks in self.steps)
        return late_s / sum(max(e["step_s"] for e in ranks.values()) for ranks in self.steps)

    @property
    def queued_share(self) -> float:
        queued_s = sum(statistics.fmean(e["queued_s"] for e in ranks.values()) for ranks in self.steps)
        return queued_s / sum(max(e["step_s"] for e in ranks.values()) for ranks in self.steps)

    def learnt(self) -> dict[str, Any]:
        """What every table of trainings has."""
        sent = self.summary["bytes"]
        return {
            **self.facts(),
            "metric": self.summary["metric"],
            "steps": self.summary["steps"],
            "time_s": self.summary["time_s"],
            "payload_bytes": sent["payload"],
            "wan_bytes": sent["wire_wan"],
        }

    def facts(self) -> dict[str, Any]:
        """What every table of runs has."""
        return {
            "verdict": self.summary["verdict"],
            "reasons": self.summary["reasons"],
            "dilation": self.summary["dilation"],
            "step_s": self.median("step_s"),
            "late_share": self.late_share,
            "queued_share": self.queued_share,
        }


def perform(overrides: Sequence[str], limit_s: float = TIME_LIMIT_S, *, runs: Path | None = None) -> WholeRun:
    """What a run says that is made for it; raises as `made`.

    Args:
        runs: where it is kept; without, it goes when it has been read.
    """
    if runs is not None:
        return read(_made(overrides, limit_s, runs))
    with made(overrides, limit_s) as run:
        return read(run)


@contextmanager
def made(overrides: Sequence[str], limit_s: float = TIME_LIMIT_S) -> Iterator[RunDir]:
    """A run, in a folder that goes when it has been read.

    Raises:
        Refused: its input was.
        RunError: it did not complete; with what it said.
        subprocess.TimeoutExpired: not after so long.
    """
    with tempfile.TemporaryDirectory() as folder:
        yield _made(overrides, limit_s, Path(folder))


def _made(overrides: Sequence[str], limit_s: float, runs: Path) -> RunDir:
    command = [sys.executable, "-m", "testbed", "run", *overrides, "metrics_port=0"]
    status, said, complaint = ended([*command, "--json", "--share", "--runs", str(runs)], limit_s)
    if status not in (EXIT_COMPLETED, EXIT_INVALID):
        kind = Refused if status == EXIT_INPUT else RunError
        raise kind(f"{' '.join(overrides)}: status {status}: {complaint.strip()[-1000:]}")
    return RunDir(runs / json.loads(said)["run_id"])


def ended(command: Sequence[str], limit_s: float, *, clone: Path = CLONE) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error of a command that makes a run.

    The run is asked to stop, so that it leaves nothing, when it takes longer than `limit_s`, and when this process is
    stopped.

    Args:
        clone: Clone whose code it runs.

    Raises:
        subprocess.TimeoutExpired: It took longer.
    """
    given = environment() if clone == CLONE else {**os.environ, "PYTHONPATH": str(clone)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=clone, env=given)
    try:
        said, complaint = process.communicate(timeout=limit_s)
    except BaseException:
        process.terminate()
        try:
            process.communicate(timeout=_STOP_S)
        finally:
            process.kill()
        raise
    return process.returncode, said, complaint


def read(run: RunDir) -> WholeRun:
    steps: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    notes, model, spoiled = [], {}, SpoiledSteps()
    for event in run.read_events():
        spoiled.add(event)
        if event["event"] == "step" and event["step"] > 1:
            steps[event["step"]][event["rank"]] = event
        elif event["event"] == "tuning":
            notes.append(event)
        elif event["event"] == "model":
            model = event
    spec, summary, provenance = (json.loads(file.read_text()) for file in (run.spec, run.summary, run.provenance))
    gone = spoiled.left_out().steps
    return WholeRun(spec, summary, provenance, dict(sorted(steps.items())), model, notes, gone)


# The directory of a run that a point performs in its own process.


def directory(root: Path, spec: RunSpec, what: str) -> RunDir:
    """With what a run finds in it when it begins.

    Args:
        what: in place of a compressor, of the run's id.
    """
    run = RunDir.create(root, new_run_id(spec.topo, "benchmark", what, spec.hash))
    write_json(run.spec, {**spec.to_json(), "code_hash": provenance.code_hash()})
    return run
