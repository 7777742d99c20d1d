"""What runs give: the arms of a case, and how many times better the best candidate is than the best baseline.

Which of them count is the rule of `experiments.reproductions.outcome`.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.common.papers.declaration import System, Trial
from testbed.core.record.run_directory import RunDir


@dataclass(frozen=True)
class Found:
    """A trial, and what its run says; None where it was not made."""

    trial: Trial
    run_id: str | None = None
    verdict: str | None = None
    figure: float | None = None
    dilation: float | None = None
    quality: float | None = None
    is_asked: bool = True
    """By this call; otherwise it is of an earlier one that asked for more."""
    machine: str | None = None
    """That its run was made on."""

    @property
    def counts(self) -> bool:
        return self.figure is not None and self.verdict in ("valid", "suspect")


def found_of(system: System, trial: Trial, run: RunDir | None, *, is_asked: bool = True) -> Found:
    if run is None:
        return Found(trial, is_asked=is_asked)
    summary = run.read_json(run.summary)
    completed = summary["status"] == "completed"
    figure = system.figure(run) if completed else None
    learns = completed and trial.kind == "emulated"
    quality = system.quality(run) if learns and system.quality is not None else None
    machine = _machine(run.read_json(run.provenance)) if completed else None
    return Found(trial, run.run_id, summary["verdict"], figure, summary["dilation"], quality, is_asked, machine)


def _machine(made: Mapping[str, Any]) -> str:
    return f"{made['cores']} cores ({made['cpu']}), Linux {made['kernel']}"


@dataclass(frozen=True)
class Side:
    """An arm of a case: the median over its runs that count, and the quality of each of them."""

    arm: str
    figure: float
    qualities: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """By what a run was given as its seed."""

    def holds(self, reference: Side, margin: float) -> bool | None:
        """Whether it is about as good as `reference`, over the seeds of both; None where no seed has two qualities."""
        both = self.qualities.keys() & reference.qualities.keys()
        if not both:
            return None
        return statistics.fmean(self.qualities[seed] - reference.qualities[seed] for seed in both) >= -margin


@dataclass(frozen=True)
class Ratio:
    """Of one case: how many times better the best candidate is than the best baseline."""

    case: str
    candidate: Side
    baseline: Side
    value: float


def side(found: Sequence[Found], case: str, kind: str, arm: str) -> Side | None:
    """None where no run of it counts."""
    asked = (case, kind, arm)
    runs = [one for one in found if one.counts and (one.trial.case, one.trial.kind, one.trial.arm) == asked]
    figures = [one.figure for one in runs if one.figure is not None]
    qualities = {_seed(one.trial): one.quality for one in runs if one.quality is not None}
    return Side(arm, statistics.median(figures), qualities) if figures else None


def sides_of(system: System, found: Sequence[Found], case: str, kind: str) -> dict[str, Side | None]:
    """By arm, of those that were asked for."""
    asked = {one.trial.arm for one in found if (one.trial.case, one.trial.kind) == (case, kind)}
    return {arm: side(found, case, kind, arm) for arm in system.arms if arm in asked}


def _seed(trial: Trial) -> str:
    return next((word.removeprefix("seed=") for word in trial.overrides if word.startswith("seed=")), "")


def ratio(system: System, found: Sequence[Found], case: str, kind: str, *, held: bool = True) -> Ratio | None:
    """None where no candidate has a run that counts, or a baseline that was asked for has none.

    Args:
        held: False: candidates count whatever their quality.
    """
    sides = sides_of(system, found, case, kind)
    if any(one is None for arm, one in sides.items() if arm in system.baselines):
        return None
    known = [one for one in sides.values() if one is not None]
    free = () if held else system.candidates
    good = [one for one in known if one.arm in free or holds(system, one, sides, kind)]
    candidate = _best(system, [one for one in good if one.arm in system.candidates])
    baseline = _best(system, [one for one in good if one.arm in system.baselines])
    if candidate is None or baseline is None:
        return None
    return Ratio(case, candidate, baseline, over(system, baseline, candidate))


def holds(system: System, one: Side, sides: Mapping[str, Side | None], kind: str) -> bool | None:
    """Whether its quality lets its figure count; None where that was not compared, or the reference's was not with all
    other baselines'. Simulated runs learn nothing, so that nothing is asked of them.

    Args:
        sides: of the same case, by arm.
    """
    if system.reference is None or kind != "emulated":
        return True
    reference = sides.get(system.reference)
    if reference is None:
        return None
    others = [side for arm, side in sides.items() if arm in system.baselines and side is not None]
    found = [reference.holds(other, system.margin_points) for other in others]
    found.append(one.holds(reference, system.margin_points))
    if False in found:
        return False
    return None if None in found else True


def over(system: System, baseline: Side, candidate: Side) -> float:
    """How many times better `candidate` is than `baseline`."""
    better, worse = (candidate, baseline) if system.higher_is_better else (baseline, candidate)
    return better.figure / worse.figure


def _best(system: System, sides: Sequence[Side]) -> Side | None:
    sign = -1 if system.higher_is_better else 1
    return min(sides, key=lambda one: sign * one.figure, default=None)


def ratios(system: System, found: Sequence[Found], kind: str, *, held: bool = True) -> list[Ratio]:
    """Of all cases that have one."""
    cases = dict.fromkeys(one.trial.case for one in found)
    each = (ratio(system, found, case, kind, held=held) for case in cases)
    return [one for one in each if one is not None]


def largest(system: System, found: Sequence[Found], kind: str) -> Ratio | None:
    """Of the cases that the claim is about."""
    claimed = [one for one in ratios(system, found, kind) if is_claimed(system, one)]
    return max(claimed, key=lambda one: one.value, default=None)


def is_claimed(system: System, one: Ratio) -> bool:
    return not system.claimed_cases or one.case in system.claimed_cases
