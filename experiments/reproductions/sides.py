"""What runs give: the arms of a case, and how many times better the best candidate is than the best baseline.

A repeat is a seed. Of several measurements of one repeat the last counts, not the best. Which runs decide is the rule
of `experiments.reproductions.outcome`, and what follows from them that of `experiments.reproductions.ledger`.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.common.papers.declaration import System, Trial, seed_of
from experiments.reproductions.ledger import NEEDED, geometric_mean
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
        """Whether its figure may be shown."""
        return self.figure is not None and self.figure > 0 and self.verdict in ("valid", "suspect")

    @property
    def decides(self) -> bool:
        """Whether a verdict may rest on it. A simulated run is `suspect` outside of the simulator's validated range."""
        return self.counts and (self.verdict == "valid" or self.trial.kind == "simulated")

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Kind, case, arm and repeat that it measures."""
        return self.trial.kind, self.trial.case, self.trial.arm, seed_of(self.trial)


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


def deciding(found: Sequence[Found]) -> list[Found]:
    """The last measurement of each repeat, without the figures and qualities of those that decide nothing.

    An `invalid` run measured nothing, so that it is the last only where there is no other. A `suspect` one did: the
    repeat is undecided until it is made again, whatever an earlier run said.
    """
    last: dict[tuple[str, str, str, str], Found] = {}
    for one in sorted(found, key=lambda one: (one.counts, one.run_id or "")):
        last[one.place] = one
    of_each = (last[place] for place in dict.fromkeys(one.place for one in found))
    return [one if one.decides else dataclasses.replace(one, figure=None, quality=None) for one in of_each]


def _machine(made: Mapping[str, Any]) -> str:
    return f"{made['cores']} cores ({made['cpu']}), Linux {made['kernel']}"


@dataclass(frozen=True)
class Side:
    """An arm of a case: figure and quality of each repeat that counts."""

    arm: str
    figures: Mapping[str, float]
    """Figures by repeat."""
    qualities: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Qualities by repeat, of those that have one."""

    @property
    def figure(self) -> float:
        """Median over repeats."""
        return statistics.median(self.figures.values())

    def differences(self, reference: Side) -> list[float]:
        """Quality above that of `reference`, of each repeat that both have."""
        both = sorted(self.qualities.keys() & reference.qualities.keys())
        return [self.qualities[repeat] - reference.qualities[repeat] for repeat in both]

    def holds(self, reference: Side, margin: float) -> bool | None:
        """Whether it is about as good as `reference`, over the repeats of both; None where no repeat has two
        qualities."""
        differences = self.differences(reference)
        return statistics.fmean(differences) >= -margin if differences else None


@dataclass(frozen=True)
class Ratio:
    """How many times better the best candidate of a case is than the best baseline."""

    case: str
    candidate: Side
    baseline: Side
    by_repeat: Mapping[str, float]
    """Ratio of each repeat that all baselines have, and the reference's quality where there is one."""

    @property
    def value(self) -> float:
        """Geometric mean over repeats."""
        return geometric_mean(self.by_repeat.values())


def side(found: Sequence[Found], case: str, kind: str, arm: str) -> Side | None:
    """Return an arm of a case, of a repeat its last entry in `found`; None where no run of it counts."""
    asked = (case, kind, arm)
    runs = [one for one in found if one.counts and (one.trial.case, one.trial.kind, one.trial.arm) == asked]
    figures = {seed_of(one.trial): one.figure for one in runs if one.figure is not None}
    qualities = {seed_of(one.trial): one.quality for one in runs if one.quality is not None}
    return Side(arm, figures, qualities) if figures else None


def sides_of(system: System, found: Sequence[Found], case: str, kind: str) -> dict[str, Side | None]:
    """By arm, of those that were asked for."""
    asked = {one.trial.arm for one in found if (one.trial.case, one.trial.kind) == (case, kind)}
    return {arm: side(found, case, kind, arm) for arm in system.arms if arm in asked}


def ratio(system: System, found: Sequence[Found], case: str, kind: str, *, held: bool = True) -> Ratio | None:
    """Return the ratio of a case; None where no repeat has a candidate and all baselines that were asked for.

    Of several candidates the one with most repeats counts, at most as many as a verdict needs, then the best.

    Args:
        held: False: candidates count whatever their quality.
    """
    sides = sides_of(system, found, case, kind)
    if any(one is None for arm, one in sides.items() if arm in system.baselines):
        return None
    known = [one for one in sides.values() if one is not None]
    free = () if held else system.candidates
    good = [one for one in known if one.arm in free or holds(system, one, sides, kind)]
    baselines = [one for one in good if one.arm in system.baselines]
    candidates = [one for one in good if one.arm in system.candidates]
    each = [_over_best(system, case, one, baselines, _repeats(system, one, sides, kind)) for one in candidates]
    return max((one for one in each if one is not None), key=standing, default=None)


def standing(one: Ratio) -> tuple[int, float]:
    """Return what the largest ratio is chosen by: enough repeats first."""
    return min(len(one.by_repeat), NEEDED), one.value


def _repeats(system: System, candidate: Side, sides: Mapping[str, Side | None], kind: str) -> list[str]:
    """Return the repeats that a candidate and all baselines have, and in which its quality can be compared."""
    both = set(candidate.figures)
    for arm, one in sides.items():
        if arm in system.baselines and one is not None:
            both &= one.figures.keys()
    reference = sides.get(system.reference) if system.reference is not None and kind == "emulated" else None
    if reference is not None:
        both &= candidate.qualities.keys() & reference.qualities.keys()
    return sorted(both)


def _over_best(
    system: System, case: str, candidate: Side, baselines: Sequence[Side], repeats: Sequence[str]
) -> Ratio | None:
    if not repeats or not baselines:
        return None
    sign = -1 if system.higher_is_better else 1
    best = min(baselines, key=lambda one: sign * geometric_mean(one.figures[repeat] for repeat in repeats))
    ratios = {repeat: over(system, best.figures[repeat], candidate.figures[repeat]) for repeat in repeats}
    return Ratio(case, candidate, best, ratios)


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


def over(system: System, baseline: float, candidate: float) -> float:
    """Return how many times better the figure `candidate` is than `baseline`."""
    return candidate / baseline if system.higher_is_better else baseline / candidate


def ratios(system: System, found: Sequence[Found], kind: str, *, held: bool = True) -> list[Ratio]:
    """Of all cases that have one."""
    cases = dict.fromkeys(one.trial.case for one in found)
    each = (ratio(system, found, case, kind, held=held) for case in cases)
    return [one for one in each if one is not None]


def largest(system: System, found: Sequence[Found], kind: str) -> Ratio | None:
    """Of the cases that the claim is about."""
    claimed = [one for one in ratios(system, found, kind) if is_claimed(system, one)]
    return max(claimed, key=standing, default=None)


def is_claimed(system: System, one: Ratio) -> bool:
    return not system.claimed_cases or one.case in system.claimed_cases
