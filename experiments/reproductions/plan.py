"""What a call of `make reproduce` asks for, what of it is there, and how long the rest takes; told before it begins.

A repeat is all that is usual of a system, with one seed. A call makes the first repeat that is not there yet, and what
is undecided of earlier ones.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.common.papers.declaration import System, Trial, with_seed
from experiments.reproductions.ledger import NEEDED
from experiments.reproductions.runs import Kept, TrialRequest, ask_all

MAX_S = 600.0
"""Of wall time, for a system that is asked for by its name, unless all of it is."""


@dataclass(frozen=True)
class Plan:
    """Plan of one system."""

    system: System
    asked: Sequence[TrialRequest]
    lacking: Sequence[TrialRequest]
    """Runs to be made, in this order."""
    most_s: float | None
    """Limit of wall time in seconds; None: as long as it takes."""
    repeat: int | None = None
    """Number of the repeat that is made, from 0; None: all that a verdict needs."""
    later: Sequence[TrialRequest] = ()
    """Runs of later repeats, which a verdict needs too."""

    @property
    def repeats(self) -> int:
        """Number of repeats that should count when it is carried out."""
        return NEEDED if self.repeat is None else self.repeat + 1

    @property
    def seconds(self) -> float:
        """About so many, of wall time."""
        total_s = sum(one.trial.seconds for one in self.lacking)
        return total_s if self.most_s is None else min(total_s, self.most_s)


def plan_of(
    system: System,
    kept: Kept,
    *,
    full: bool = False,
    seeds: bool = False,
    again: bool = False,
    most_s: float | None = MAX_S,
    repeat: int | None = None,
) -> Plan:
    """
    Args:
        seeds: all repeats that a verdict needs.
        again: what is there of the repeat is made once more.
        most_s: of wall time, unless all of it is asked for; None: as long as it takes.
        repeat: is made; None: the first that is not there.

    Raises:
        InputError: a trial asks for what is not there.
    """
    repeats = repeats_of(system)
    usual = [one for each in repeats for one in each]
    if full or seeds:
        more = _unusual(system, usual) if full else []
        lacking = [*usual, *more] if again else [one for one in (*usual, *more) if not kept.is_done(one)]
        return Plan(system, [*usual, *more], lacking, None)
    if repeat is None:
        repeat = last_begun(repeats, kept) if again else first_lacking(repeats, kept)
    asked = [one for each in repeats[: repeat + 1] for one in each]
    lacking = repeats[repeat] if again else _lacking(asked, kept)
    return Plan(system, asked, lacking, most_s, repeat, usual[len(asked) :])


@functools.cache
def repeats_of(system: System) -> list[list[TrialRequest]]:
    """Return what is usual of a system, as often as a verdict needs. Simulated runs are of the first repeat: another
    seed changes nothing of them.

    Raises:
        InputError: a trial asks for what is not there.
    """
    first = system.trials(False)
    emulated = [trial for trial in first if trial.kind == "emulated"]
    return [ask_all(first), *(ask_all([with_seed(trial, seed) for trial in emulated]) for seed in range(1, NEEDED))]


def _unusual(system: System, usual: Sequence[TrialRequest]) -> list[TrialRequest]:
    known = {one.trial for one in usual}
    return ask_all([trial for trial in system.trials(True) if trial not in known])


def first_lacking(repeats: Sequence[Sequence[TrialRequest]], kept: Kept) -> int:
    """Return the number of the first repeat of which a run was never made; the last, where all were."""
    lacks = (any(kept.find(one) is None for one in each) for each in repeats)
    return next((number for number, lacking in enumerate(lacks) if lacking), len(repeats) - 1)


def last_begun(repeats: Sequence[Sequence[TrialRequest]], kept: Kept) -> int:
    """Return the number of the last repeat that has a run; the first, where none has."""
    begun = [number for number, each in enumerate(repeats) if any(kept.find(one) is not None for one in each)]
    return max(begun, default=0)


def _lacking(asked: Sequence[TrialRequest], kept: Kept) -> list[TrialRequest]:
    """Return runs to be made: those that were never made, then those that decide nothing as they are."""
    undone = [one for one in asked if not kept.is_done(one)]
    never = {one.trial for one in undone if kept.find(one) is None}
    return sorted(undone, key=lambda one: one.trial not in never)


def beyond(plan: Plan, kept: Kept) -> list[TrialRequest]:
    """What was not asked for now, but is there: runs of an earlier call with `--full`. With them come the baselines of
    their cases that have no run, so that a strong one that was never made is missed."""
    more = _unusual(plan.system, [*plan.asked, *plan.later])
    there = [one for one in more if kept.find(one) is not None]
    has_run = {_place(one.trial) for one in there} | {_place(one.trial) for one in plan.asked}
    cases = {(one.trial.case, one.trial.kind) for one in there}
    lacking = {
        _place(one.trial): one
        for one in more
        if one.trial.arm in plan.system.baselines
        and (one.trial.case, one.trial.kind) in cases
        and _place(one.trial) not in has_run
    }
    return [*there, *lacking.values()]


def _place(trial: Trial) -> tuple[str, str, str]:
    return trial.case, trial.kind, trial.arm


def repeat_line(plan: Plan) -> str:
    """Return which repeat is made, and `plan_line`."""
    which = f"all {NEEDED} repeats" if plan.repeat is None else f"repeat {plan.repeat + 1} of {NEEDED}"
    return f"{which}: {plan_line(plan.lacking, len(plan.asked))}"


def plan_line(lacking: Sequence[TrialRequest], count: int) -> str:
    """Runs times seconds, before anything is begun."""
    parts = []
    for kind in ("emulated", "simulated"):
        each = [one.trial.seconds for one in lacking if one.trial.kind == kind]
        if each:
            parts.append(f"{len(each)} {kind} x {sum(each) / len(each):.0f} s")
    total_s = sum(one.trial.seconds for one in lacking)
    there = f"{count - len(lacking)} of {count} runs are there"
    return f"{there}; to make: {' + '.join(parts)} = about {total_s:.0f} s" if parts else there


def all_plans(plans: Sequence[Plan]) -> str:
    """A line for each system, and where there are several one for all."""
    lines = [f"{plan.system.name}: {repeat_line(plan)}" for plan in plans]
    if len(plans) == 1:
        return lines[0]
    lacking = [one for plan in plans for one in plan.lacking]
    total = plan_line(lacking, sum(len(plan.asked) for plan in plans))
    seconds = sum(plan.seconds for plan in plans)
    limit = f", of which this call makes about {seconds:.0f} s" if any(_is_cut(plan) for plan in plans) else ""
    return "\n".join([*lines, f"all {len(plans)} systems: {total}{limit}"])


def _is_cut(plan: Plan) -> bool:
    return plan.most_s is not None and sum(one.trial.seconds for one in plan.lacking) > plan.most_s
