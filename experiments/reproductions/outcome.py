"""From runs to a ratio, a verdict and `result.json`.

The rule, fixed before anything was measured. In each case the best candidate is held against the best baseline; runs
whose own verdict is `invalid` count for nothing, and a case counts only where each baseline that was asked of it does,
so that a strong one cannot be missing. Where a reference is declared, an arm counts only if its mean quality, over the
seeds that both have, is at most `margin_points` below the reference's; nothing does if the reference itself is so far
below another baseline, or was not compared with one, for want of qualities of one seed. (This clause came after DeAR
and the K-FAC systems were measured, which have no reference.) Where all candidates of a case are too low by that, and
no case has a ratio, the claim was not met: `not`, with no `emulated`. (This one came with PipeTransformer, whose paper
says that accuracy is held.) What was not compared is not too low, and nothing is said of it. Nor is anything before
each emulated run of a candidate or baseline that was asked for has been made: what is left for the next call might
decide. `emulated` is the largest of these ratios over the cases that the claim is about. (Which these are is declared
since KV transfer was measured, whose largest was of another.) With the claimed ratio c, a gain of c - 1:

    reproduced   emulated is at least 1 + 0.9 (c - 1): nine tenths of the claimed gain
    partly       not so, but above 1.05: better than the best other by more than runs of the same spec differ
    not          at most 1.05, or the reference's quality was not held

Simulated runs stand in the page's table and decide nothing.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.reproductions.system import System, Trial
from testbed.core.rundir import RunDir

RESULT_KEYS = ("system", "claim", "source", "baseline", "runs", "emulated", "verdict", "condition")
"""Of `result.json`, in order; missing is null."""
VERDICTS = ("reproduced", "partly", "not")
SHARE_OF_THE_GAIN = 0.9
LEAST_RATIO = 1.05
_MOST_NAMED = 6


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
    claimed = [one for one in ratios(system, found, kind) if _is_claimed(system, one)]
    return max(claimed, key=lambda one: one.value, default=None)


def _is_claimed(system: System, one: Ratio) -> bool:
    return not system.claimed_cases or one.case in system.claimed_cases


def _largest_too_low(system: System, found: Sequence[Found]) -> Ratio | None:
    """Of the cases all of whose candidates were compared, and are too low."""
    compared = []
    for one in ratios(system, found, "emulated", held=False):
        sides = sides_of(system, found, one.case, "emulated")
        candidates = [side for arm, side in sides.items() if arm in system.candidates and side is not None]
        if _is_claimed(system, one) and all(holds(system, side, sides, "emulated") is False for side in candidates):
            compared.append(one)
    return max(compared, key=lambda one: one.value, default=None)


def verdict_of(claimed: float, emulated: float | None, *, too_low: bool = False) -> str | None:
    """One of `VERDICTS`, by the rule above; None where nothing was emulated that counts.

    Args:
        too_low: candidates were compared, and did not hold the reference's quality.
    """
    if emulated is None:
        return "not" if too_low else None
    if emulated >= 1 + SHARE_OF_THE_GAIN * (claimed - 1):
        return "reproduced"
    return "partly" if emulated > LEAST_RATIO else "not"


def result(system: System, found: Sequence[Found]) -> dict[str, Any]:
    """The content of `result.json`, with exactly `RESULT_KEYS`."""
    is_complete = not left(system, found)
    best = largest(system, found, "emulated") if is_complete else None
    too_low = _largest_too_low(system, found) if best is None and is_complete else None
    emulated = None if best is None else best.value
    return {
        "system": system.name,
        "claim": system.claim,
        "source": system.source,
        "baseline": system.baseline,
        "runs": {
            "baseline": _ids(found, system.baselines),
            "candidate": _ids(found, system.candidates),
        },
        "emulated": None if emulated is None else round(emulated, 4),
        "verdict": verdict_of(system.claimed, emulated, too_low=too_low is not None),
        "condition": "; ".join([system.setting, *_remarks(system, best, too_low, found)]),
    }


def left(system: System, found: Sequence[Found]) -> list[Trial]:
    """Of those that decide and were asked for, what was not made yet."""
    deciding = (one.trial for one in found if one.is_asked and one.run_id is None and one.trial.kind == "emulated")
    return [trial for trial in deciding if trial.arm not in system.beside]


def _ids(found: Sequence[Found], arms: Sequence[str]) -> list[str]:
    """Of the runs that count."""
    return [one.run_id for one in found if one.run_id is not None and one.counts and one.trial.arm in arms]


def _remarks(system: System, best: Ratio | None, too_low: Ratio | None, found: Sequence[Found]) -> list[str]:
    """
    Args:
        too_low: the largest ratio of candidates that do not count for their quality, where none does.
    """
    remarks = []
    if too_low is not None:
        remarks.append(f"{too_low.value:.2f} times for {too_low.case}, at a lower quality, so that it does not count")
    if best is not None:
        remarks.append(f"largest for {best.case}, where the best other is {best.baseline.arm}")
        if system.reference is not None:
            seeds = len(best.candidate.qualities)
            remarks.append(f"qualities of {seeds} seed{'s' * (seeds > 1)}")
    for one in ratios(system, found, "emulated"):
        if not _is_claimed(system, one):
            remarks.append(f"beside the claim: {one.value:.2f} times for {one.case}, best other {one.baseline.arm}")
    for words, arms in zip(("too low", "not compared in quality"), _uncounted(system, found), strict=True):
        if arms:
            they = "they do" if len(arms) > 1 else "it does"
            remarks.append(f"{words}, so that {they} not count: {', '.join(arms)}")
    for words, which in (
        ("invalid", [one for one in found if one.verdict == "invalid"]),
        ("suspect", [one for one in found if one.verdict == "suspect" and one.trial.kind == "emulated"]),
        ("not made", [one for one in found if one.run_id is None]),
    ):
        if which:
            more = f" and {len(which) - _MOST_NAMED} more" if len(which) > _MOST_NAMED else ""
            remarks.append(f"{words}: {', '.join(one.trial.label for one in which[:_MOST_NAMED])}{more}")
    return remarks


def _uncounted(system: System, found: Sequence[Found]) -> tuple[list[str], list[str]]:
    """Emulated cases and arms that are too low to count, and those of which that is not known, with why."""
    low, unknown = [], []
    for case in dict.fromkeys(one.trial.case for one in found if one.trial.kind == "emulated"):
        sides = sides_of(system, found, case, "emulated")
        for one in (side for side in sides.values() if side is not None):
            if holds(system, one, sides, "emulated") is False:
                low.append(f"{case} ({one.arm})")
            elif why := _why_not_compared(system, one, sides):
                unknown.append(f"{case} ({one.arm}: {why})")
    return low, unknown


def _why_not_compared(system: System, one: Side, sides: Mapping[str, Side | None]) -> str | None:
    """None where it was; `sides` of the same case."""
    if system.reference is None:
        return None
    reference = sides.get(system.reference)
    if reference is None:
        return f"no run of {system.reference} counts"
    if not one.qualities:
        return "no quality"
    if not reference.qualities:
        return f"{system.reference} has no quality"
    return None if one.qualities.keys() & reference.qualities.keys() else f"no seed that {system.reference} has too"


def last_line(system: System, content: Mapping[str, Any]) -> str:
    """System, claimed, emulated, verdict."""
    emulated = "-" if content["emulated"] is None else f"{content['emulated']:.3g}"
    return f"{system.name}: claimed {system.claimed:.3g}, emulated {emulated}, verdict {content['verdict'] or '-'}"
