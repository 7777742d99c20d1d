"""From runs to a figure of one kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from testbed.analysis.comparison.groups import BELIEVED, Group, grouped
from testbed.analysis.figures import curves, points
from testbed.analysis.figures.link_curves import link_use
from testbed.analysis.figures.methods import differing_keys
from testbed.analysis.figures.table import Figure
from testbed.analysis.record.identity import verdict_of
from testbed.analysis.record.record import Record
from testbed.core.errors import InputError, nearest
from testbed.core.record.figure_kinds import BANDS, FIGURE_KINDS

Builder = Callable[[Sequence[Group], str, float | None], Figure]

KINDS: dict[str, Builder] = {
    "accuracy_over_time": curves.over_time,
    "accuracy_over_bytes": curves.over_bytes,
    "accuracy_over_steps": curves.over_steps,
    "time_to_target": points.time_to_target,
    "step_split": points.step_split,
    "pareto": points.pareto,
    "link_use": link_use,
    "scaling": points.scaling,
}
"""Function that makes each of `FIGURE_KINDS`."""


def build(
    records: Sequence[Record],
    kind: str,
    *,
    target: float | None = None,
    band: str = "range",
    allow_invalid: bool = False,
) -> Figure:
    """Return the figure of a kind. It has no panels if the runs hold nothing to draw.

    Args:
        records: Runs; those that differ by the seed alone are one series.
        kind: One of `FIGURE_KINDS`.
        target: Value of the metric that counts as reached; None for that of each run.
        band: One of `BANDS`.
        allow_invalid: True to draw runs that are invalid or unfinished too. Without, the notes name them.

    Raises:
        InputError: An unknown kind or band, with every fault.
    """
    faults = [_unknown("kind", kind, FIGURE_KINDS)] if kind not in KINDS else []
    faults += [_unknown("band", band, BANDS)] if band not in BANDS else []
    if faults:
        raise InputError(*faults)
    groups = grouped(records, take_all=allow_invalid)
    figure = KINDS[kind](groups, band, target)
    without = tuple(left_out(records, allow_invalid=allow_invalid))
    keys = differing_keys(groups)
    more = [f"Series differ in {', '.join(keys)} too."] if keys else []
    return dataclasses.replace(figure, notes=(*figure.notes, *more, *without), left_out=without)


def left_out(records: Sequence[Record], *, allow_invalid: bool = False) -> list[str]:
    """Return a sentence on the runs that a figure leaves out; nothing if it leaves out none."""
    found = [] if allow_invalid else [record for record in records if verdict_of(record) not in BELIEVED]
    if not found:
        return []
    named = ", ".join(f"{record.run_id} ({verdict_of(record)})" for record in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return [f"Left out: {len(found)} of {len(records)} runs, invalid or unfinished: {named}{more}."]


_NAMED = 8


def _unknown(what: str, given: str, known: Iterable[str]) -> str:
    meant = nearest(given, known)
    return f"{what} {given!r} is unknown{f'; did you mean {meant!r}?' if meant else ''}; known: {', '.join(known)}"
