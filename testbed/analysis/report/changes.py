"""What happened to links and nodes while a run went on, as figures and tables show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes

from testbed.analysis.record.record import Point, Record, is_finite
from testbed.core.units import format_rate, format_time

MAX_LINES = 24
"""Above, changes are ticks at the foot of a figure: lines would hide the curves."""
MAX_ROWS = 200
HEADINGS = ("time", "late", "what", "where", "values", "cause")


def mark(axes: Axes, record: Record) -> None:
    """A dotted line for each moment at which something changed, or a tick where there are many."""
    times = sorted({round(event["t_s"], 3) for event in record.of_kind("change") if is_finite(event["t_s"])})
    style: Any = {"color": "#777777", "linewidth": 0.8}
    if len(times) > MAX_LINES:
        axes.vlines(times, 0, 0.03, transform=axes.get_xaxis_transform(), label="changes", **style)
        return
    for index, t_s in enumerate(times):
        axes.axvline(t_s, linestyle=":", label="change" if index == 0 else None, **style)


def asked_over_time(
    record: Record, field: str, asked: dict[tuple[str, str], float]
) -> dict[tuple[str, str], list[Point]]:
    """Of the directions (link, source) whose `field` was changed: what was asked, from the beginning to the end."""
    steps: dict[tuple[str, str], list[Point]] = {}
    for event in record.of_kind("change"):
        key, value = (event["name"], event["from"]), (event["after"] or {}).get(field)
        if key in asked and is_finite(value):
            points = steps.setdefault(key, [(0.0, asked[key])])
            points += [(event["t_s"], points[-1][1]), (event["t_s"], value)]
    end_s = max((event["t_s"] for event in record.events), default=0.0)
    return {key: [*points, (end_s, points[-1][1])] for key, points in steps.items()}


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
