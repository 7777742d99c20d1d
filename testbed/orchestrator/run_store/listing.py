"""The table that `longhaul list` prints, and its other formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from testbed.core.files import printable
from testbed.core.record.run_row import NAMES, Row, differing_columns
from testbed.core.record.table_formats import csv_table, latex_table
from testbed.core.units import column_unit, significant
from testbed.orchestrator.terminal.display import VERDICT_STYLES
from testbed.orchestrator.terminal.spoken import MISSING, number

OLD_NAMES = {"metric": "metric_last", "wire_wan": "wan_bytes"}
"""Names of 1.0 that JSON and CSV have too, until 3.0."""
FIELDS = (*NAMES, *OLD_NAMES)
"""Fields of JSON and CSV."""
_ALWAYS = ("run_id", "status", "verdict", "topo", "strategy", "compressor")
_IF_DIFFERENT = ("workload", "device", "workers", "steps", "metric_name", "user_code")
_HEADINGS = {"run_id": "run", "metric_name": "metric", "user_code": "user code"}
_MEASURED = (
    ("last", "metric_last", ""),
    ("time", "time_s", "time"),
    ("WAN bytes", "wan_bytes", "size"),
)
"""Heading, column and kind of what was measured."""
_VERSION_DIGITS = 6
"""Digits of a version that are shown, as a comparison shows them."""


def with_old_names(rows: Sequence[Row]) -> list[Row]:
    """Return rows for a script: all fields, in base units, those of 1.0 under their old names too."""
    return [{**row, **{old: row[new] for old, new in OLD_NAMES.items()}} for row in rows]


def formatted(rows: Sequence[Row], form: str) -> str:
    """Return the table as "json" or "csv", with all fields in base units, or as "latex", as it is shown."""
    if form == "json":
        return json.dumps(with_old_names(rows), indent=2, allow_nan=False)
    if form == "csv":
        return csv_table(FIELDS, with_old_names(rows))
    headings, cells, notes = shown(rows)
    return latex_table(headings, cells, len(headings) - len(_MEASURED) - 1, notes)


def table(rows: Sequence[Row]) -> Table:
    """Return the table for a terminal."""
    headings, cells, notes = shown(rows)
    view = Table(box=box.SIMPLE_HEAD, caption=" ".join(notes) or None, caption_justify="left")
    words = len(headings) - len(_MEASURED) - 1
    for place, heading in enumerate(headings):
        view.add_column(heading, overflow="fold", no_wrap=False, justify="left" if place < words else "right")
    for row, texts in zip(rows, cells, strict=True):
        # no plain str: a foreign directory may bear any name, and rich would read [..] in it as markup
        style = VERDICT_STYLES.get(str(row["verdict"]), "").replace("green", "")
        view.add_row(*(Text(printable(text)) for text in texts), style=style)
    return view


def shown(rows: Sequence[Row]) -> tuple[list[str], list[list[str]], list[str]]:
    """Return headings, cells and notes. What is the same in all runs is a note; a measured column has one unit."""
    readable = [row for row in rows if row["topo"] is not None]
    names = [*_ALWAYS, *differing_columns(readable, _IF_DIFFERENT)]
    metrics = {row["metric_name"] for row in readable} - {None}
    units = {name: column_unit(filter(None, (number(row[name]) for row in rows)), kind) for _, name, kind in _MEASURED}
    headings = [_HEADINGS.get(name, name) for name in names] + ["seed"]
    for heading, name, _ in _MEASURED:
        heading += f" {metrics.pop() if len(metrics) == 1 else 'metric'}" if name == "metric_last" else ""
        headings.append(f"{heading} ({units[name][1]})" if units[name][1] else heading)
    cells = [
        [*(_word(row, name) for name in names), _whole(row["seed"])]
        + [_spoken(row[name], units[name][0]) for _, name, _ in _MEASURED]
        for row in rows
    ]
    same = [name for name in ("workload", "workers") if readable and name not in names]
    notes = [f"{', '.join(f'{name} {_word(readable[0], name)}' for name in same)}."] if same else []
    return headings, cells, notes


def _word(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if name == "compressor" and row["hooks"]:
        value = row["hooks"]
    if name == "user_code" and value:
        value = value[:_VERSION_DIGITS]
    if name == "verdict" and row["kind"] not in (None, "emulated"):
        return f"{value or MISSING}, {row['kind']}"
    return _whole(value) if number(value) is not None else str(value or MISSING)


def _whole(value: Any) -> str:
    return MISSING if number(value) is None else f"{value:.0f}"


def _spoken(value: Any, unit: float) -> str:
    found = number(value)
    return MISSING if found is None else significant(found / unit)
