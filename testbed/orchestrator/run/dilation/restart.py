"""A run that came out `invalid` for want of cores is made once more, slower; what there is of the first is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.cleanup import remove_leftovers
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.run.dilation.calibration import Calibration, calibrated_at
from testbed.orchestrator.run.dilation.first_guess import most_dilation, on_grid
from testbed.orchestrator.run.dilation.search import UNTRIED_RATIO

MAX_SLOWDOWN = 4.0
"""Largest ratio of the dilations, so that a second attempt does not take longer than a user waits: assumed."""


def slowed(run: RunDir) -> tuple[RunSpec, str] | None:
    """Return the spec that a completed run is to be made with once more, and why; None where its record stands.

    It stands unless it is `invalid` since workers, their messages or delay lines were late, or no core was ever idle;
    and where the dilation was given or wanted as it is guessed, or the links bear no larger one.
    """
    spec = RunSpec.from_json(run.read_json(run.spec))
    if not spec.auto_dilation or spec.guessed_dilation:
        return None
    judge = Judge(spec)
    for event in run.read_events():
        judge.add(event)
    verdict, reasons = judge.verdict()
    if verdict != "invalid" or judge.needed_slowdown <= 1:
        return None
    wanted = on_grid(min(MAX_SLOWDOWN, UNTRIED_RATIO * judge.needed_slowdown) * spec.dilation)
    dilation = min(wanted, most_dilation(spec))
    if dilation <= spec.dilation:
        return None
    why = f"begun again at dilation {dilation:g}: at {spec.dilation:g} it was invalid: {reasons[0]}"
    return dataclasses.replace(spec, dilation=dilation), why


def put_aside(run: RunDir) -> None:
    """Move what the first attempt has recorded out of the way of the second, to a folder of the run directory."""
    run.first_attempt.mkdir()
    for path in (run.events, run.network, run.provenance, run.logs, run.capture, run.model):
        if path.exists():
            path.rename(run.first_attempt / path.name)
    run.logs.mkdir()


def prepare(run: RunDir, spec: RunSpec, calibration: Calibration | None) -> None:
    """Write what the run's own process reads."""
    run.runtime.mkdir(mode=0o700)  # the telemetry socket is for this run's containers, which get it bound
    write_json(run.spec, {**spec.to_json(), "code_hash": provenance.code_hash()})
    if calibration is not None:
        write_json(run.profiles, calibration.to_json())


def prepare_again(
    run: RunDir, calibration: Calibration | None, tell: Callable[[str], None]
) -> tuple[str, list[str]] | None:
    """Make ready for a second attempt if it is to be slower; return why it is, and what the first has left behind.

    What fails here leaves the first attempt as it is, whose record is whole.
    """
    if (again := slowed(run)) is None:
        return None
    spec, why = again
    try:
        slower = calibration and calibrated_at(spec, calibration, tell, give_to_caller)
    except RunError as error:
        tell(f"not begun again: {error}")
        return None
    left = left_behind(run)
    put_aside(run)
    prepare(run, spec, slower)
    return why, left


def left_behind(run: RunDir) -> list[str]:
    """Remove what a run left; return what could not be removed, one line each."""
    return [f"left behind: {what}" for what in remove_leftovers(run.run_id)]
