"""A comparison as text, JSON, CSV and LaTeX. Numbers in JSON and CSV are in base units."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from testbed.analysis.comparison.cells import INTERVAL
from testbed.analysis.comparison.comparison import Comparison, remarks, table
from testbed.analysis.comparison.groups import EXPORTED, PROPERTIES, Group, shown_settings
from testbed.analysis.comparison.intervals import Estimate
from testbed.analysis.record.identity import code_of, user_code_of, verdict_of
from testbed.analysis.record.run_settings import asked
from testbed.core.files import printable
from testbed.core.record.summary import VERDICTS
from testbed.core.record.table_formats import aligned, csv_table, latex_table

SCHEMA_VERSION = 1
"""Version of the form of `to_json`."""


def formatted(comparison: Comparison, form: str) -> str:
    """Return the table in one of `table_formats.FORMATS`."""
    if form == "json":
        return json.dumps(to_json(comparison), indent=2, allow_nan=False)
    return {"csv": to_csv, "latex": latex, "text": text}[form](comparison)


def text(comparison: Comparison) -> str:
    """Return columns aligned by spaces, and the remarks; missing is a dash."""
    found = table(comparison)
    lines = aligned([found.headings, *found.rows]) if comparison.groups else ["nothing to compare"]
    return "\n".join([*lines, "", *(printable(remark) for remark in remarks(comparison))])


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return all of it as JSON values, in base units."""
    return {
        "schema_version": SCHEMA_VERSION,
        "interval": INTERVAL,
        "rows": [_object(group) for group in comparison.groups],
        "left_out": [
            {"run_id": record.run_id, "verdict": (record.summary or {}).get("verdict")}
            for record in comparison.left_out
        ],
    }


def _object(group: Group) -> dict[str, Any]:
    return {
        "method": group.method,
        "differs": group.differs,
        **group.properties(),
        "asked": asked(group.records[0].spec),
        "code_hash": code_of(group.records[0]),
        "user_code": user_code_of(group.records[0]),
        "metric_name": group.metric_name,
        "run_ids": [record.run_id for record in group.taken],
        "seeds": group.seeds(),
        "verdicts": group.verdicts(),
        "settings": dict(group.settings),
        "values": {key: interval(found) for key, found in group.values(EXPORTED).items()},
    }


def interval(found: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate as JSON; `values` are those of the seeds, in their order."""
    if found is None:
        return None
    parts = {"mean": found.mean, "low": found.low, "high": found.high}
    return {**parts, "seeds": found.seeds, "runs": found.runs, "values": list(found.values)}


PARTS = ("mean", "low", "high")
"""Columns of CSV for each measure: the mean over seeds, and the ends of its interval."""


def rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return all fields of each row, flat and in base units: what CSV has."""
    keys, settings = shown_settings(comparison.groups)
    groups = zip(comparison.groups, settings, strict=True)
    return [_row(group) | {key: mine.get(key) for key in keys} for group, mine in groups]


def _row(group: Group) -> dict[str, Any]:
    counts = group.verdicts()
    return {
        "method": group.method,
        "differs": group.differs,
        **group.properties(),
        "metric_name": group.metric_name,
        "seeds": len(group.seeds()),
        "runs": len(group.taken),
        **{verdict: counts.get(verdict, 0) for verdict in _VERDICTS},
        **measured_fields(group.values(EXPORTED)),
        "run_ids": [record.run_id for record in group.taken],
    }


_VERDICTS = (*VERDICTS, "unfinished")
_BEGIN = ("method", "differs", *PROPERTIES, "metric_name", "seeds", "runs", *_VERDICTS)
FIELDS = (*_BEGIN, *(f"{measure.key}_{part}" for measure in EXPORTED for part in PARTS), "run_ids")
"""Fields that every row has."""


def measured_fields(values: Mapping[str, Estimate | None]) -> dict[str, float | None]:
    """Return the mean and the ends of the interval of each value, as `time_s_mean`, `time_s_low`, `time_s_high`."""
    return {f"{key}_{part}": getattr(found, part, None) for key, found in values.items() for part in PARTS}


def to_csv(comparison: Comparison) -> str:
    """Return a line for each row of the table; what is missing is empty."""
    found = rows(comparison)
    return csv_table(list(found[0]) if found else FIELDS, found)


def latex(comparison: Comparison) -> str:
    """Return a `tabular` for booktabs; the remarks are comments."""
    found = table(comparison)
    return latex_table(found.headings, found.rows, found.words, remarks(comparison))


def left_out_line(comparison: Comparison) -> str | None:
    """Return a line for the error stream, where the table itself cannot say what is left out; None if nothing is."""
    if not comparison.left_out:
        return None
    found = ", ".join(f"{record.run_id} ({verdict_of(record)})" for record in comparison.left_out)
    return f"left out: {printable(found)}; --all takes them in"
