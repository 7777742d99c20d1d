"""From runs to evidence, and `result.json`.

In each case the best candidate is held against the best baseline, repeat by repeat. A repeat counts where each baseline
that was asked for has a `valid` run, so that a strong one cannot be missing; `suspect` runs are shown and decide
nothing. Where a reference is declared, an arm counts only if its mean quality, over the repeats that both have, is at
most `margin_points` below the reference's; nothing does if the reference itself is so far below another baseline, or
was not compared with one. Where all candidates of a case are too low by that, and no case has a ratio, the claim was
not met. What was not compared is not too low, and nothing is said of it. Of several cases that the claim is about the
one with the largest ratio counts, those with enough repeats first. What follows from all this is the rule of
`experiments.reproductions.ledger`. Simulated runs may contradict a claim, and support none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.common.papers.declaration import System, Trial
from experiments.common.tables import half_width
from experiments.reproductions.cases import cases_of
from experiments.reproductions.ledger import NEEDED, Evidence, Simulated, judge
from experiments.reproductions.sides import (
    Found,
    Ratio,
    Side,
    deciding,
    holds,
    is_claimed,
    largest,
    ratio,
    ratios,
    sides_of,
)

_MAX_NAMED = 6


def _largest_too_low(system: System, found: Sequence[Found]) -> Ratio | None:
    """Return the largest ratio of the cases all of whose candidates were compared, and are too low."""
    compared = []
    for one in ratios(system, found, "emulated", held=False):
        sides = sides_of(system, found, one.case, "emulated")
        candidates = [side for arm, side in sides.items() if arm in system.candidates and side is not None]
        if is_claimed(system, one) and all(holds(system, side, sides, "emulated") is False for side in candidates):
            compared.append(one)
    return max(compared, key=lambda one: one.value, default=None)


def result(system: System, found: Sequence[Found]) -> dict[str, Any]:
    """Return the content of `result.json`; what is missing is null.

    Args:
        found: measurements of all trials, in any order; several of one repeat may be among them.
    """
    known = deciding(found)
    best = largest(system, known, "emulated")
    too_low = _largest_too_low(system, known) if best is None else None
    decides = best or too_low
    by_repeat = {} if decides is None else {repeat: round(value, 4) for repeat, value in decides.by_repeat.items()}
    evidence = Evidence(
        claimed=system.claimed,
        ratios=tuple(by_repeat.values()),
        is_held=too_low is None,
        not_made=len(left(system, found)),
        simulated=_simulated(system, known),
        weaker_baseline=system.terms.weaker_baseline,
        why_above=system.terms.why_above,
    )
    return _content(
        system,
        evidence,
        runs={"baseline": _ids(known, system.baselines), "candidate": _ids(known, system.candidates)},
        condition="; ".join([system.setting, *_remarks(system, best, too_low, known, found)]),
        by_repeat=by_repeat,
        quality=_quality(system, decides, known),
        cases=cases_of(system, found, known),
        machines=sorted({one.machine for one in found if one.run_id is not None and one.machine is not None}),
    )


def judged_again(system: System, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded result, judged by the terms as they are declared now.

    Records older than the ledger have one ratio at most: it counts as one repeat, whatever it was the median of. A
    record of another declared baseline or setting is of other arms: nothing of it counts.
    """
    if recorded["baseline"] != system.baseline or not recorded["condition"].startswith(system.setting):
        return result(system, [])
    by_repeat = recorded.get("ratios")
    if by_repeat is None:
        by_repeat = {} if recorded["emulated"] is None else {"0": recorded["emulated"]}
    counted = recorded.get("repeats", {"counted": int(recorded["verdict"] is not None)})["counted"]
    quality = recorded.get("quality")
    is_old_low = "ratios" not in recorded and recorded["emulated"] is None and recorded["verdict"] == "not"
    of_size = {tuple(one["cases"]): one["ratio"] for one in recorded.get("simulated", ())}
    evidence = Evidence(
        claimed=system.claimed,
        ratios=tuple(by_repeat.values()),
        unnamed=max(counted - len(by_repeat), 0),
        is_held=quality["held"] if quality else not is_old_low,
        not_made=recorded.get("not_made", 0),
        simulated=tuple(Simulated(one.cases, one.published, of_size.get(one.cases)) for one in system.terms.at_size),
        weaker_baseline=system.terms.weaker_baseline,
        why_above=system.terms.why_above,
    )
    if is_old_low:
        quality = {"held": False, "margin": system.margin_points, "difference": None, "interval": None}
    return _content(
        system,
        evidence,
        runs=recorded["runs"],
        condition=recorded["condition"],
        by_repeat=by_repeat,
        quality=quality,
        cases=recorded.get("cases", []),
        machines=recorded.get("machines", []),
    )


def _content(
    system: System,
    evidence: Evidence,
    *,
    runs: Mapping[str, list[str]],
    condition: str,
    by_repeat: Mapping[str, float],
    quality: Mapping[str, Any] | None,
    cases: Sequence[Mapping[str, Any]],
    machines: Sequence[str],
) -> dict[str, Any]:
    found = judge(evidence)
    return {
        "system": system.name,
        "claim": system.claim,
        "source": system.source,
        "baseline": system.baseline,
        "runs": runs,
        "emulated": None if found.emulated is None else round(found.emulated, 4),
        "verdict": found.verdict,
        "condition": condition,
        "class": system.terms.kind,
        "claimed": system.claimed,
        "standing": found.standing,
        "repeats": {"counted": found.repeats, "needed": NEEDED, "missing": found.missing_repeats},
        "ratios": dict(by_repeat),
        "interval": None if found.interval is None else [round(end, 4) for end in found.interval],
        "reaches": list(found.reaches),
        "quality": quality,
        "not_made": evidence.not_made,
        "missing": list(found.missing),
        "caps": list(found.caps),
        "above_claim": found.is_above,
        "explanation": evidence.why_above if found.is_above else None,
        "simulated": [
            {"cases": list(one.cases), "published": one.published, "ratio": one.ratio, "agrees": one.agrees}
            for one in evidence.simulated
        ],
        "set_ups": {"paper": system.terms.paper.to_json(), "ours": system.terms.ours.to_json()},
        "cases": list(cases),
        "machines": list(machines),
    }


def _simulated(system: System, known: Sequence[Found]) -> tuple[Simulated, ...]:
    found = []
    for one in system.terms.at_size:
        each = [ratio(system, known, case, "simulated") for case in one.cases]
        values = [of_case.value for of_case in each if of_case is not None]
        found.append(Simulated(one.cases, one.published, round(max(values), 4) if len(values) == len(each) else None))
    return tuple(found)


def _quality(system: System, decides: Ratio | None, known: Sequence[Found]) -> dict[str, Any] | None:
    """Return how far the candidate's quality is above the reference's, in points, with its 95 % interval."""
    if system.reference is None or decides is None:
        return None
    sides = sides_of(system, known, decides.case, "emulated")
    reference = sides[system.reference]
    differences = [] if reference is None else decides.candidate.differences(reference)
    half = half_width(differences) if len(differences) >= NEEDED else None
    mean = fmean(differences) if differences else None
    return {
        "held": holds(system, decides.candidate, sides, "emulated"),
        "margin": system.margin_points,
        "difference": None if mean is None else round(mean, 3),
        "interval": None if half is None or mean is None else [round(mean - half, 3), round(mean + half, 3)],
    }


def left(system: System, found: Sequence[Found]) -> list[Trial]:
    """Return the trials that decide, were asked for, and were never made."""
    deciding = (one.trial for one in found if one.is_asked and one.run_id is None and one.trial.kind == "emulated")
    return [trial for trial in deciding if trial.arm not in system.beside]


def _ids(found: Sequence[Found], arms: Sequence[str]) -> list[str]:
    """Return the ids of runs that count."""
    return [one.run_id for one in found if one.run_id is not None and one.counts and one.trial.arm in arms]


def _remarks(
    system: System, best: Ratio | None, too_low: Ratio | None, known: Sequence[Found], found: Sequence[Found]
) -> list[str]:
    """
    Args:
        too_low: the largest ratio of candidates that do not count for their quality, where none does.
        known: as `deciding` has them.
        found: as they were found.
    """
    remarks = []
    if too_low is not None:
        remarks.append(f"{too_low.value:.2f} times for {too_low.case}, at a lower quality, so that it does not count")
    if best is not None:
        remarks.append(f"largest for {best.case}, where the best other is {best.baseline.arm}")
        if system.reference is not None:
            seeds = len(best.by_repeat)
            remarks.append(f"qualities of {seeds} seed{'s' * (seeds > 1)}")
    for one in ratios(system, known, "emulated"):
        if not is_claimed(system, one):
            remarks.append(f"beside the claim: {one.value:.2f} times for {one.case}, best other {one.baseline.arm}")
    for words, arms in zip(("too low", "not compared in quality"), _uncounted(system, known), strict=True):
        if arms:
            they = "they do" if len(arms) > 1 else "it does"
            remarks.append(f"{words}, so that {they} not count: {', '.join(arms)}")
    for words, which in (
        ("invalid", [one for one in found if one.verdict == "invalid"]),
        ("suspect", [one for one in found if one.verdict == "suspect" and one.trial.kind == "emulated"]),
        ("not made", [one for one in found if one.run_id is None and one.trial.kind == "emulated"]),
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
    """Return system, claimed, emulated with its interval, verdict or why there is none, and how much is missing."""
    emulated = "-" if content["emulated"] is None else f"{content['emulated']:.3g}{interval_words(content)}"
    verdict = content["verdict"]
    if verdict is None:
        missing = content["repeats"]["missing"]
        count = f"; {missing} repeat{'s' * (missing != 1)} missing" if missing else ""
        verdict = f"- ({content['standing']}{count})"
    return f"{system.name}: claimed {system.claimed:.3g}, emulated {emulated}, verdict {verdict}"


def interval_words(content: Mapping[str, Any]) -> str:
    """Return " (1.16 to 1.22)", or nothing where there is no interval."""
    interval = content["interval"]
    return "" if interval is None else f" ({interval[0]:.3g} to {interval[1]:.3g})"
