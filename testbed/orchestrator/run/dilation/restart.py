"""A run that came out `invalid` for want of cores is made once more, slower; what there is of the first is kept."""

from __future__ import annotations

import dataclasses

from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.run.dilation.first_guess import most_dilation, on_grid

MAX_SLOWDOWN = 2.0
"""Largest ratio of the dilations: the disturbance may have passed."""


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
    wanted = on_grid(min(MAX_SLOWDOWN, judge.needed_slowdown) * spec.dilation)
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
