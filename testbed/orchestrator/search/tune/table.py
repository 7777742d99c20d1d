"""What `longhaul tune` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.core.units import format_size, format_time
from testbed.orchestrator.search.tune.trials import BYTES, TIME
from testbed.orchestrator.terminal.spoken import MISSING

_LEFT = ("settings", "verdicts", "runs")


def trials_table(content: Mapping[str, Any]) -> RenderableType:
    """Those that reached the target, the best first; several that no other beats where both count."""
    rows = [row for row in content["trials"] if row["reached"]]
    # a trial makes no runs of another kind
    heading = f"{content['name']}: {len(rows)} of {len(content['trials'])} trials reached the target (emulated)"
    if not rows:
        return Text(heading, style="bold")
    table = Table(box=box.SIMPLE)
    for head in ("trial", "settings", "to target", "WAN bytes until then", "", "verdicts", "runs"):
        table.add_column(head, justify="left" if head in _LEFT else "right")
    first = content["by"][0]
    known: set[tuple[str, ...]] = set()
    for row in sorted(rows, key=lambda row: (row["figures"][first], row["trial"])):
        if tuple(row["run_ids"]) in known:  # settings that were tried before
            continue
        known.add(tuple(row["run_ids"]))
        table.add_row(
            str(row["trial"]),
            row["label"],
            format_time(row["figures"][TIME]),
            format_size(row["figures"][BYTES]) if row["figures"][BYTES] else MISSING,
            _mark(content, row),
            ", ".join(row["verdicts"]),
            " ".join(row["run_ids"]),
        )
    return Group(Text(heading, style="bold"), table)


def _mark(content: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if not row["front"]:
        return ""
    return "front" if len(content["by"]) > 1 else "best"


def left_out(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Why trials failed, and how far those came that did not reach the target; each setting once."""
    known: set[str] = set()
    for row in rows:
        if row["reached"] or row["label"] in known:
            continue
        known.add(row["label"])
        why = row["why_not"] or f"target not reached, by {row['shortfall']:.1%} of it"
        yield f"trial {row['trial']}: {row['label']}: {'failed: ' if row['why_not'] else ''}{why}"
