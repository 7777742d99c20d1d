"""Tables of measured values, one unit a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.analysis.record.record import is_finite
from testbed.analysis.style import html_page
from testbed.core.units import column_unit, significant

Column = str | tuple[str, str] | tuple[str, str, str]
"""Heading, and the kind of its values in base units: "time", "size", "rate" or "ratio".

A third item is the heading of the column before it whose unit it has, where that one has values.
"""


def measured_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> str:
    """Return the markup of a table. Headings name the unit, and measured values are aligned to the right."""
    found = [list(row) for row in rows]
    headings, numbers = [], []
    units: dict[str, tuple[float, str]] = {}
    for place, column in enumerate(columns):
        if isinstance(column, str):
            headings.append(column)
            continue
        heading, kind, *like = column
        values = [value for row in found if is_finite(value := row[place])]
        own = (0.01, "%") if kind == "ratio" else column_unit(values, kind)
        factor, unit = units.get(like[0], own) if like else own
        if values:
            units[heading] = factor, unit
        for row in found:
            value = row[place]
            row[place] = significant(value / factor) if is_finite(value) else value
        headings.append(f"{heading} ({unit})" if unit else heading)
        numbers.append(headings[-1])
    return html_page.table(headings, found, numbers=numbers)
