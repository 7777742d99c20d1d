"""What `longhaul laws` prints: laws, figures, runs, and one line that says whether it is lawful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.orchestrator.terminal.spoken import MISSING, spoken, spoken_size, spoken_time

_STYLES = {"holds": "green", "broken": "bold red", "does not apply": "dim"}
Rows = Sequence[Mapping[str, Any]]


def laws_table(
    name: str, laws: Rows, throughput: Rows, runs: Mapping[str, Mapping[str, Any]], *, is_judged: bool = True
) -> RenderableType:
    """Missing values are dashes.

    Args:
        is_judged: all laws were looked at.
    """
    parts: list[RenderableType] = [_laws(laws)]
    if throughput:
        parts.append(_throughput(throughput))
    if runs:
        parts.append(_runs(runs))
    counts = Counter(str(row["outcome"]) for row in laws)
    said = ", ".join(f"{count} {word}" for word in _STYLES if (count := counts[word]))
    verdict = "breaks the law" if counts["broken"] else "is lawful" if is_judged else "was not judged to the end"
    parts.append(Text(f"{name} {verdict}: {said}", style="bold"))
    return Group(*parts)


def _laws(rows: Rows) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("law")
    table.add_column("found")
    table.add_column("says; what was found", overflow="fold")
    for row in rows:
        outcome = str(row["outcome"])
        text = Text(str(row["says"]))
        if row["detail"]:
            text.append(f"\n{row['detail']}", _STYLES[outcome])
        table.add_row(str(row["law"]), Text(outcome, style=_STYLES[outcome]), text)
    return table


def _throughput(rows: Rows) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="with an allocator that keeps large blocks", title_justify="left")
    headings = ("elements", "threads", "clone", "encode", "decode", "share of clone", "bits/element", "error", "cosine")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        first = (str(row["numel"]), str(row["threads"]))
        if "skipped" in row:
            table.add_row(*first, str(row["skipped"]))
            continue
        times = (spoken_time(row.get(key)) for key in ("clone_s", "encode_s", "decode_s"))
        forms = {"share": "{:.3f}", "bits": "{:.2f}", "relative_error": "{:.4f}", "cosine": "{:.4f}"}
        table.add_row(*first, *times, *(spoken(row.get(key), form) for key, form in forms.items()))
    return table


def _runs(runs: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("run with", "status", "metric", "best", "emulated time", "payload", "on the wire"):
        table.add_column(heading, justify="left" if heading in ("run with", "status") else "right")
    for name, summary in runs.items():
        metric, sent = summary.get("metric") or {}, summary.get("bytes") or {}
        table.add_row(
            name,
            f"{summary.get('status') or MISSING}, {summary.get('verdict') or MISSING}",
            spoken(metric.get("value")),
            spoken(metric.get("best")),
            spoken_time(summary.get("time_s")),
            spoken_size(sent.get("payload")),
            spoken_size(sent.get("wire_total")),
        )
    return table
