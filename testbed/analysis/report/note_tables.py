"""Tables of what plug-ins outside the tree have recorded: one for each kind of note."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.analysis.record.record import Record
from testbed.analysis.style import html_page

MAX_ROWS = 500
"""Notes of one kind in a report; the record holds them all."""
_MAX_COLUMNS = 64
_STAMP = ("t_s", "rank", "step")


def sections(record: Record) -> Iterator[str]:
    """Yield a section for each kind of note, in the order in which kinds first came; nothing without notes."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for event in record.of_kind("note"):
        kinds.setdefault(str(event.get("kind")), []).append(event)
    for kind, notes in kinds.items():
        fields = [name for note in notes for name in note if name not in (*_STAMP, "event", "kind")]
        columns = list(dict.fromkeys(fields))[:_MAX_COLUMNS]
        rows = ([_shown(note.get(name)) for name in (*_STAMP, *columns)] for note in notes[:MAX_ROWS])
        left_out = f" The first {MAX_ROWS} are shown." if len(notes) > MAX_ROWS else ""
        remark = html_page.note(f"{len(notes)} notes that a plug-in has recorded.{left_out}")
        yield html_page.section(f"Notes: {kind}", remark, html_page.table((*_STAMP, *columns), rows))


def _shown(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(str(_shown(item)) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else value
