"""What a call of `make reproduce` asks for, what of it is there, and how long the rest takes; told before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.common.papers.declaration import System, Trial
from experiments.reproductions.runs import Kept, TrialRequest, ask_all

MAX_S = 600.0
"""Of wall time, for a system that is asked for by its name, unless all of it is."""


@dataclass(frozen=True)
class Plan:
    """Of one system."""

    system: System
    asked: Sequence[TrialRequest]
    lacking: Sequence[TrialRequest]
    """To be made, in this order."""
    most_s: float | None
    """Of wall time; None: as long as it takes."""

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
) -> Plan:
    """
    Args:
        again: what is there is made once more.
        most_s: of wall time, unless all of it is asked for; None: as long as it takes.

    Raises:
        InputError: a trial asks for what is not there.
    """
    asked = ask_all(_trials(system, full=full, seeds=seeds))
    lacking = asked if again else [one for one in asked if not kept.is_done(one)]
    return Plan(system, asked, lacking, None if full or seeds else most_s)


def _trials(system: System, *, full: bool, seeds: bool) -> Sequence[Trial]:
    if not seeds:
        return system.trials(full)
    usual = {(trial.case, trial.arm, trial.kind) for trial in system.trials(False)}
    return [trial for trial in system.trials(True) if (trial.case, trial.arm, trial.kind) in usual]


def beyond(plan: Plan, kept: Kept) -> list[TrialRequest]:
    """What was not asked for now, but is there: runs of an earlier call with `--full`. With them come the baselines of
    their cases that have no run, so that a strong one that was never made is missed."""
    known = {one.trial for one in plan.asked}
    more = ask_all([trial for trial in plan.system.trials(True) if trial not in known])
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
    lines = [f"{plan.system.name}: {plan_line(plan.lacking, len(plan.asked))}" for plan in plans]
    if len(plans) == 1:
        return lines[0]
    lacking = [one for plan in plans for one in plan.lacking]
    total = plan_line(lacking, sum(len(plan.asked) for plan in plans))
    seconds = sum(plan.seconds for plan in plans)
    limit = f", of which this call makes about {seconds:.0f} s" if any(_is_cut(plan) for plan in plans) else ""
    return "\n".join([*lines, f"all {len(plans)} systems: {total}{limit}"])


def _is_cut(plan: Plan) -> bool:
    return plan.most_s is not None and sum(one.trial.seconds for one in plan.lacking) > plan.most_s
