"""What `longhaul tune` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.core.files import printable
from testbed.core.units import column_unit, significant
from testbed.orchestrator.search.tune.trials import BYTES, TIME
from testbed.orchestrator.terminal.spoken import MISSING

_METHOD = ("strategy", "compressor")
_LEFT = (*_METHOD, "verdicts", "runs")


def trials_table(content: Mapping[str, Any]) -> RenderableType:
    """Return those that reached the target, the best first; several that no other beats where both count."""
    rows = [row for row in content["trials"] if row["reached"]]
    # a trial makes no runs of another kind
    heading = f"{content['name']}: {len(rows)} of {len(content['trials'])} trials reached the target (emulated)"
    if not rows:
        return Text(heading, style="bold")
    first = content["by"][0]
    # settings that were tried before are the same runs
    shown = {tuple(row["run_ids"]): row for row in sorted(rows, key=lambda row: (row["figures"][first], -row["trial"]))}
    return Group(Text(heading, style="bold"), _table(content, list(shown.values())))


def _table(content: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    keys = [key for key in dict.fromkeys(key for row in rows for key in row["values"]) if key not in (*_METHOD, "seed")]
    keys = [key for key in keys if len({row["values"].get(key) for row in rows}) > 1]
    units = {key: column_unit((row["figures"][key] for row in rows), kind) for key, kind in _KINDS.items()}
    table = Table(box=box.SIMPLE)
    measured = [f"to target ({units[TIME][1]})", f"WAN bytes until then ({units[BYTES][1]})", ""]
    for head in ("trial", *_METHOD, *keys, *measured, "verdicts", "runs"):
        table.add_column(head, justify="left" if head in (*_LEFT, *keys) else "right")
    for row in rows:
        table.add_row(
            str(row["trial"]),
            *(printable(row[part] or MISSING) for part in _METHOD),
            *(printable(row["values"].get(key, MISSING)) for key in keys),
            *(
                significant(row["figures"][key] / unit) if row["figures"][key] else MISSING
                for key, (unit, _) in units.items()
            ),
            _mark(content, row),
            ", ".join(row["verdicts"]),
            " ".join(row["run_ids"]),
        )
    return table


_KINDS = {TIME: "time", BYTES: "size"}


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
