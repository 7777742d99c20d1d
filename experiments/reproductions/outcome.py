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

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common.papers.declaration import System, Trial
from experiments.reproductions.sides import Found, Ratio, Side, holds, is_claimed, largest, ratios, sides_of

VERDICTS = ("reproduced", "partly", "not")
SHARE_OF_THE_GAIN = 0.9
MIN_RATIO = 1.05
_MAX_NAMED = 6


def _largest_too_low(system: System, found: Sequence[Found]) -> Ratio | None:
    """Of the cases all of whose candidates were compared, and are too low."""
    compared = []
    for one in ratios(system, found, "emulated", held=False):
        sides = sides_of(system, found, one.case, "emulated")
        candidates = [side for arm, side in sides.items() if arm in system.candidates and side is not None]
        if is_claimed(system, one) and all(holds(system, side, sides, "emulated") is False for side in candidates):
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
    return "partly" if emulated > MIN_RATIO else "not"


def result(system: System, found: Sequence[Found]) -> dict[str, Any]:
    """Return the content of `result.json`: exactly these keys, in this order; what is missing is null."""
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
        if not is_claimed(system, one):
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
            remarks.append(f"{words}: {_named(Counter(one.trial.label for one in which))}")
    return remarks


def _named(labels: Counter[str]) -> str:
    """The first few, and of how many seeds each, if of several."""
    named = [f"{label}, {runs} seeds" if runs > 1 else label for label, runs in labels.items()]
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    return ("; " if max(labels.values()) > 1 else ", ").join(named[:_MAX_NAMED]) + more


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
