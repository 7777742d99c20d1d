"""Cells of tables over seeds: a column has one unit, and a row of two seeds shows both values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.analysis.comparison.groups import MEASURES, Measure
from testbed.analysis.comparison.intervals import COVERAGE, Estimate
from testbed.core.units import column_unit, significant

INTERVAL = f"{COVERAGE:.0%} interval over seeds, Student's t".replace("%", " %")
MISSING = "-"
PARTIAL = "(k of n): k of the n runs have the value; the target, for one, may never have been reached."


@dataclass(frozen=True)
class Measured:
    """Measured values of one row."""

    values: dict[str, Estimate | None]
    """Estimate by the measure's key."""
    runs: int
    """Number of runs that could have a value."""
    metric_name: str | None

    @property
    def is_partial(self) -> bool:
        """True if some value is that of a part of the runs."""
        return any(found is not None and found.runs < self.runs for found in self.values.values())


@dataclass(frozen=True)
class Shown:
    """A table as text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int
    """Number of columns, from the left, that hold words and counts; what was measured follows."""


def shown(headings: Sequence[str], words: Sequence[Sequence[str]], rows: Sequence[Measured]) -> Shown:
    """Return the table of rows of words and of what was measured.

    Args:
        headings: Headings of the words.
        words: Cells of each row below them.
        rows: Measured values of each row.
    """
    units = {measure.key: _unit(measure, rows) for measure in MEASURES}
    names = {row.metric_name for row in rows} - {None}
    measured = [_heading(measure, names, units[measure.key][1]) for measure in MEASURES]
    cells = [tuple(_cell(row, measure, units[measure.key][0], names) for measure in MEASURES) for row in rows]
    lines = tuple((*begin, *end) for begin, end in zip(words, cells, strict=True))
    return Shown((*headings, *measured), lines, len(headings))


def _unit(measure: Measure, rows: Sequence[Measured]) -> tuple[float, str]:
    found = (row.values[measure.key] for row in rows)
    return column_unit((one.mean for one in found if one is not None), measure.kind)


def _heading(measure: Measure, names: set[str | None], unit: str) -> str:
    heading = measure.heading
    if measure.key.startswith("metric_"):
        heading = f"{heading} {next(iter(names)) if len(names) == 1 else 'metric'}"
    return f"{heading} ({unit})" if unit else heading


def _cell(row: Measured, measure: Measure, unit: float, names: set[str | None]) -> str:
    found = row.values[measure.key]
    if found is None:
        return MISSING
    text = spoken_estimate(found, unit, row.runs)
    is_named = measure.key.startswith("metric_") and len(names) > 1 and row.metric_name
    return f"{row.metric_name} {text}" if is_named else text


def spoken_estimate(found: Estimate, unit: float, runs: int) -> str:
    """Return "12.1 ± 0.3" for three seeds or more, "12.1, 12.4" for two, "12.1" for one; and of how many runs.

    Args:
        unit: Base units in the column's unit.
        runs: Number of runs that could have the value.
    """
    if found.seeds == 2:
        text = ", ".join(significant(value / unit) for value in found.values)
    else:
        text = significant(found.mean / unit)
        if found.half_width is not None:
            text += f" ± {significant(found.half_width / unit, 2)}"
    return text if found.runs == runs else f"{text} ({found.runs} of {runs})"


def interval_remarks(rows: Sequence[Measured]) -> Iterator[str]:
    """Yield what the cells of a table mean."""
    most = max((found.seeds for row in rows for found in row.values.values() if found), default=0)
    if most > 2:
        yield f"Mean ± half the {INTERVAL}; two seeds are shown as both values, one seed has no interval."
    elif most == 2:
        yield "Two values are those of two seeds, in their order; from three seeds on there is an interval."
    elif most == 1:
        yield "One seed a row, hence no interval."
    if any(found.runs > found.seeds for row in rows for found in row.values.values() if found):
        yield "Repeats of a seed count once, by their mean."
    if any(row.is_partial for row in rows):
        yield PARTIAL
