"""The table of a reproduction, and the region of its page that holds it: docs/reproductions/NAME.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.page import between
from experiments.common.papers.declaration import KINDS, System
from experiments.common.tables import number, spread, table
from experiments.reproductions.outcome import last_line
from experiments.reproductions.sides import Found, Ratio, holds, over, ratio, side, sides_of
from testbed.core.errors import InputError

REGION = "reproduction"


def write(system: System, found: Sequence[Found], content: Mapping[str, Any], pages: Path) -> None:
    """Rewrite the region of the system's page.

    Raises:
        InputError: there is no such page, or it has no such region.
    """
    path = pages / f"{system.name}.md"
    try:
        path.write_text(between(path.read_text(), REGION, region(system, found, content)))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the page of SYSTEM={system.name} cannot be written: {error}") from error


def region(system: System, found: Sequence[Found], content: Mapping[str, Any]) -> str:
    """What was claimed, what came of it, and the table."""
    runs = sorted(run for side in content["runs"].values() for run in side)
    machines = sorted({one.machine for one in found if one.run_id in runs and one.machine is not None})
    made = (
        f"{'; '.join(machines)}; {len(runs)} runs, the first {runs[0]}, the last {runs[-1]}; their ids are in"
        if runs
        else "No run is there yet; ids will be in"
    )
    file = f"[result.json](../../experiments/reproductions/{system.folder}/result.json)"
    said = f"**{last_line(system, content)}.** Condition: {content['condition']}."
    return "\n\n".join([said, cases_table(system, found), f"{made} {file}."])


def cases_table(system: System, found: Sequence[Found]) -> str:
    """A row for each case, emulated ones first. In parentheses behind an arm that is no candidate: how many times
    better the best candidate is, whatever its quality where none holds the reference's."""
    cases = [
        (kind, case) for kind in KINDS for case in dict.fromkeys(f.trial.case for f in found if f.trial.kind == kind)
    ]
    arms = [arm for arm in system.arms if any(one.trial.arm == arm for one in found)]
    judged = arms if system.quality is not None else []
    facts = list(dict.fromkeys(name for kind, case in cases for name in system.facts(case, kind)))
    rows = []
    for kind, case in cases:
        here = [one for one in found if (one.trial.kind, one.trial.case) == (kind, case)]
        best = ratio(system, found, case, kind)
        shown = best or ratio(system, found, case, kind, held=False)
        rows.append(
            [
                case,
                kind,
                *(system.facts(case, kind).get(name, "-") for name in facts),
                *(_cell(system, found, shown, case, kind, arm) for arm in arms),
                *(_quality(system, found, case, kind, arm) for arm in judged),
                "-" if best is None else f"{best.value:.3f} ({best.baseline.arm})",
                " ".join(sorted({f"{one.dilation:g}" for one in here if one.dilation is not None})) or "-",
                _verdicts(here),
            ]
        )
    heads = (
        "case",
        "kind",
        *facts,
        *(f"{arm}{' (beside)' * (arm in system.beside)}: {system.figure_name}" for arm in arms),
        *(f"{arm}: {system.quality_name}" for arm in judged),
        "best other",
        "dilation",
        "verdicts",
    )
    return table(heads, rows)


def _cell(system: System, found: Sequence[Found], best: Ratio | None, case: str, kind: str, arm: str) -> str:
    one = side(found, case, kind, arm)
    if one is None:
        return "-"
    if best is None or arm in system.candidates:
        return number(one.figure, ".4g")
    return f"{one.figure:.4g} ({over(system, one, best.candidate):.2f})"


def _quality(system: System, found: Sequence[Found], case: str, kind: str, arm: str) -> str:
    """Mean over runs, and the interval of it."""
    sides = sides_of(system, found, case, kind)
    one = sides.get(arm)
    if one is None or not one.qualities:
        return "-"
    said = {True: "", False: ", too low", None: ", not compared"}[holds(system, one, sides, kind)]
    return spread(list(one.qualities.values()), ".2f") + said


def _verdicts(here: Sequence[Found]) -> str:
    """How many of each."""
    counts: dict[str, int] = {}
    for one in here:
        verdict = one.verdict or "not made"
        counts[verdict] = counts.get(verdict, 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
