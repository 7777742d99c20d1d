"""A comparison as text, JSON, CSV and LaTeX. Numbers in JSON and CSV are in base units."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from testbed.analysis.comparison.comparison import INTERVAL, Comparison, cells, headings, remarks
from testbed.analysis.comparison.groups import MEASURES, PROPERTIES, Group
from testbed.analysis.comparison.intervals import Estimate
from testbed.analysis.record.identity import code_of, user_code_of, verdict_of
from testbed.analysis.record.run_settings import asked
from testbed.analysis.style.text_table import aligned
from testbed.core.files import printable, spreadsheet_safe
from testbed.core.record.summary import VERDICTS

SCHEMA_VERSION = 1
"""Of `to_json`."""


def text(comparison: Comparison) -> str:
    """Columns aligned by spaces, and the remarks; missing is a dash."""
    lines = aligned([headings(comparison), *(cells(comparison, group) for group in comparison.groups)])
    if not comparison.groups:
        lines = ["nothing to compare"]
    return "\n".join([*lines, "", *(printable(remark) for remark in remarks(comparison))])


def to_json(comparison: Comparison) -> dict[str, Any]:
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
        "values": {key: interval(found) for key, found in group.values().items()},
    }


def interval(found: Estimate | None) -> dict[str, float | int | None] | None:
    """As JSON."""
    if found is None:
        return None
    return {"mean": found.mean, "low": found.low, "high": found.high, "seeds": found.seeds, "runs": found.runs}


def to_csv(comparison: Comparison) -> str:
    """A line for each row of the table; what is missing is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    parts = ("mean", "low", "high")
    values = [f"{measure.key}_{part}" for measure in MEASURES for part in parts]
    verdicts = (*VERDICTS, "unfinished")
    writer.writerow(["method", "differs", *PROPERTIES, "metric_name", "seeds", "runs", *verdicts, *values, "run_ids"])
    for group in comparison.groups:
        counts = group.verdicts()
        found = group.values()
        row: list[Any] = [group.method, group.differs, *group.properties().values(), group.metric_name]
        row += [len(group.seeds()), len(group.taken), *(counts.get(verdict, 0) for verdict in verdicts)]
        row += [getattr(found[measure.key], part, None) for measure in MEASURES for part in parts]
        row.append(" ".join(record.run_id for record in group.taken))
        writer.writerow([spreadsheet_safe(cell) for cell in row])
    return out.getvalue().rstrip("\n")


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "…": r"\dots{}",
    "µ": r"\textmu{}",
}


def latex(comparison: Comparison) -> str:
    """A `tabular` for the packages booktabs and, for quotation marks, fontenc with T1; the remarks as comments."""
    names = headings(comparison)
    columns = "l" * names.index("verdicts") + "l" + "r" * len(MEASURES)
    return "\n".join(
        [
            r"% \usepackage{booktabs} and \usepackage[T1]{fontenc}",
            *(f"% {printable(remark)}" for remark in remarks(comparison)),
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _latex_row(names),
            r"\midrule",
            *(_latex_row(cells(comparison, group)) for group in comparison.groups),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _latex_row(row: Sequence[str]) -> str:
    return " & ".join(escaped(cell) for cell in row) + r" \\"


def escaped(cell: object) -> str:
    """For LaTeX: every character that means something to it."""
    return "".join(_LATEX.get(character, character) for character in printable(cell))


def left_out_line(comparison: Comparison) -> str | None:
    """For the error stream, where the table itself cannot say it."""
    if not comparison.left_out:
        return None
    found = ", ".join(f"{record.run_id} ({verdict_of(record)})" for record in comparison.left_out)
    return f"left out: {printable(found)}; --all takes them in"
