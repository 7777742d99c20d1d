"""One command as a newcomer gives it: nothing is known of the machine yet, and what it says counts, a refusal too."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.whole_run import ended
from testbed.core.errors import (
    EXIT_COMPLETED,
    EXIT_FAILED,
    EXIT_INVALID,
    InputError,
    MachineError,
    RunError,
)
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.machine.lock import require_free

LIMIT_S, WAIT_S, POLL_S = 600.0, 120.0, 1.0
_MAX_TEXT = 400
_TOLD = {EXIT_COMPLETED, EXIT_INVALID, EXIT_FAILED}
"""Exit statuses with a summary on standard output."""


def first_run(overrides: Sequence[str], *, clone: Path = CLONE) -> dict[str, Any]:
    """Return the facts of `longhaul run` in a clone that has measured nothing yet.

    Its `verdict` is that of the summary, or "refused", "failed", "too long" (after `LIMIT_S`). Times are wall seconds,
    but `step_s`, the median step on the emulated clock. What a summary does not have is None.

    Raises:
        MachineError: Another run has the machine for too long.
        RunError: The machine lacks something, so that nothing is known.
    """
    wait_for_the_machine()
    forget(clone)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        command = [str(clone / ".venv" / "bin" / "python"), "-m", "testbed", "run", *overrides, "metrics_port=0"]
        started_s = time.monotonic()
        try:
            status, said, complaint = ended([*command, "--json", "--runs", folder], LIMIT_S, clone=clone)
        except subprocess.TimeoutExpired:
            return {"verdict": "too long", "reasons": [f"not done after {LIMIT_S:g} s"], "wall_s": LIMIT_S}
        wall_s = time.monotonic() - started_s
        if status == InputError.exit_status:
            return {"verdict": "refused", "reasons": _lines(complaint), "wall_s": wall_s, "exit_status": status}
        if status not in _TOLD:
            raise RunError(f"{' '.join(overrides)}: status {status}: {' '.join(_lines(complaint))}")
        if not said.strip():  # it broke before there was a record
            return {"verdict": "failed", "reasons": _lines(complaint), "wall_s": wall_s, "exit_status": status}
        summary = json.loads(said)
        losses = _losses(RunDir(runs / summary["run_id"]))
        return {**facts(summary), **losses, "wall_s": wall_s, "exit_status": status}


def wait_for_the_machine() -> None:
    """Return once no other run has the machine.

    Raises:
        MachineError: It has it for longer than `WAIT_S`.
    """
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        with contextlib.suppress(MachineError):
            require_free()
            return
        time.sleep(POLL_S)
    require_free()


def facts(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a summary says of a first try; older summaries do not have all of it."""
    has_failed = summary["status"] != "completed"
    time_s, dilation = summary["time_s"], summary["dilation"]
    return {
        "verdict": "failed" if has_failed else summary["verdict"],
        "reasons": [reason[:_MAX_TEXT] for reason in summary["reasons"]],
        "dilation": dilation,
        "tried_dilations": summary.get("tried_dilations"),
        "attempts": summary.get("attempts"),
        "left_out": (summary.get("left_out") or {}).get("count"),
        "steps": summary["steps"],
        "step_s": summary["step_time_s"]["p50"],
        "training_s": None if time_s is None else time_s * dilation,
    }


def is_valid(result: Mapping[str, Any]) -> bool:
    """True of a run that is `valid`, be it after a restart."""
    return bool(result["verdict"] == "valid")


def was_restarted(result: Mapping[str, Any]) -> bool:
    """True of a run that was made again by itself, at a larger dilation."""
    return (result.get("attempts") or 1) > 1


def forget(clone: Path = CLONE) -> None:
    """Empty the folder of what was measured of the machine."""
    shutil.rmtree(clone / ".cache" / "profiles", ignore_errors=True)


def _losses(run: RunDir) -> dict[str, Any]:
    """Return a hash of the losses of all ranks in all steps, digit for digit, and the last one of rank 0."""
    losses = {(event["step"], event["rank"]): event["loss"] for event in run.read_events() if event["event"] == "step"}
    last = losses.get((max((step for step, _ in losses), default=0), 0))
    content = json.dumps([[*key, losses[key]] for key in sorted(losses)])
    return {"losses_hash": hashlib.sha256(content.encode()).hexdigest()[:16], "last_loss": last}


def _lines(complaint: str) -> list[str]:
    """Return the last lines of what was said, the very last first: it says why."""
    return [line[:_MAX_TEXT] for line in reversed(complaint.splitlines()) if line.strip()][:3]


@contextlib.contextmanager
def half_core(seconds: float = LIMIT_S + WAIT_S) -> Iterator[None]:
    """Keep half a core busy meanwhile, `seconds` at most."""
    load = [sys.executable, str(sources.file("experiments.common.first_try.half_core")), str(seconds)]
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *load])
    try:
        yield
        if process.poll() is not None:
            raise RunError("the load ended before the run did")
    finally:
        process.kill()
        process.wait()


def depends_on(**_: Any) -> Iterator[Path]:
    """Yield the files that a first run depends on."""
    yield from sources.of_whole_runs()
    for folder in ("run", "observation", "machine"):
        yield from (CLONE / "testbed" / "orchestrator" / folder).rglob("*.py")
    for name in ("command", "half_core"):
        yield sources.file(f"experiments.common.first_try.{name}")
