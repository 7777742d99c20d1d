"""Changes of links and nodes while a run went on, as a table shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.analysis.record.record import Record, is_finite
from testbed.core.units import format_rate, format_time

MAX_ROWS = 200
HEADINGS = ("time", "late", "what", "where", "values", "cause")


def rows(record: Record) -> Iterator[tuple[object, ...]]:
    for event in record.of_kind("change")[:MAX_ROWS]:
        where = event.get("node") or event.get("name")
        if event.get("from"):
            where = f"{where}, {event['from']} to {event.get('to')}"
        before = event.get("before") or {}
        values = (
            f"{name} {_shown(name, before.get(name))} to {_shown(name, value)}"
            for name, value in (event.get("after") or {}).items()
        )
        late = format_time(event["late_s"]) if is_finite(event.get("late_s")) else None
        yield f"{event['t_s']:.3f} s", late, event.get("what"), where, "; ".join(values), event.get("cause")


def remark(record: Record) -> str:
    count = len(record.of_kind("change"))
    asked = len(record.spec.events) if record.spec else 0
    left = f"; the first {MAX_ROWS} are shown" if count > MAX_ROWS else ""
    return f"The spec asks for {asked} changes; {count} took effect (one for each direction, link or node){left}."


def _shown(name: str, value: Any) -> str:
    if not is_finite(value):
        return str(value)
    if name.endswith("_bit_s"):
        return format_rate(value)
    return f"{100 * value:.3g} %" if name.endswith("_ratio") else format_time(value)
