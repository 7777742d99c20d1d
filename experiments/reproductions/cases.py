"""Cases of a reproduction for `result.json`: figure and quality of each arm, what its runs came out as, the ratio."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from experiments.common.papers.declaration import KINDS, System, seed_of
from experiments.reproductions.sides import Found, ratio, sides_of


def cases_of(system: System, found: Sequence[Found], known: Sequence[Found]) -> list[dict[str, Any]]:
    """Return an entry for each case and kind, emulated ones first.

    Args:
        found: measurements as they were found; `suspect` ones are shown.
        known: as `deciding` has them, of which the ratios are.
    """
    places = [(kind, case) for kind in KINDS for case in _cases(found, kind)]
    return [_entry(system, found, known, case, kind) for kind, case in places]


def _cases(found: Sequence[Found], kind: str) -> list[str]:
    return list(dict.fromkeys(one.trial.case for one in found if one.trial.kind == kind))


def _entry(system: System, found: Sequence[Found], known: Sequence[Found], case: str, kind: str) -> dict[str, Any]:
    here = [one for one in found if (one.trial.kind, one.trial.case) == (kind, case)]
    best = ratio(system, known, case, kind)
    return {
        "case": case,
        "kind": kind,
        "facts": dict(system.facts(case, kind)),
        "dilations": sorted({one.dilation for one in here if one.dilation is not None}),
        "arms": {
            arm: _arm(system, arm, [one for one in here if one.trial.arm == arm])
            for arm in sides_of(system, found, case, kind)
        },
        "ratio": None
        if best is None
        else {
            "candidate": best.candidate.arm,
            "baseline": best.baseline.arm,
            "value": round(best.value, 4),
            "by_repeat": {repeat: round(value, 4) for repeat, value in best.by_repeat.items()},
        },
    }


def _arm(system: System, arm: str, runs: Sequence[Found]) -> dict[str, Any]:
    figures = {seed_of(one.trial): one.figure for one in runs if one.counts}
    qualities = [one.quality for one in runs if one.counts and one.quality is not None]
    return {
        "role": _role(system, arm),
        "figures": {repeat: _rounded(figure) for repeat, figure in sorted(figures.items())},
        "quality": _rounded(fmean(qualities)) if qualities else None,
        "verdicts": dict(sorted(Counter(one.verdict or "not made" for one in runs).items())),
    }


def _role(system: System, arm: str) -> str:
    if arm in system.candidates:
        return "candidate"
    return "baseline" if arm in system.baselines else "beside"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
