"""Values of records as words: a dash where one is missing, units where it has some."""

from __future__ import annotations

from typing import Any

from testbed.core.units import format_rate, format_size, format_time

MISSING = "-"


def number(value: Any) -> float | None:
    """Return the value if it is a number, None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def spoken(value: Any, form: str = "{:.4g}") -> str:
    """Return a number in `form`, or a dash."""
    found = number(value)
    return MISSING if found is None else form.format(found)


def spoken_size(value: Any) -> str:
    """Return bytes with a unit, or a dash."""
    found = number(value)
    return MISSING if found is None else format_size(found)


def spoken_rate(value: Any) -> str:
    """Return bits a second with a unit, or a dash."""
    found = number(value)
    return MISSING if found is None else format_rate(found)


def spoken_time(value: Any) -> str:
    """Return seconds with a unit, or a dash."""
    found = number(value)
    return MISSING if found is None else ("0 s" if found == 0 else format_time(found))


def spoken_left(seconds: float | None) -> str:
    """Return how long something still takes, as "35 s left"; empty if that is not known."""
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 6000 else f"{seconds / 3600:.1f} h left"


def spoken_change(event: dict[str, Any]) -> str:
    """Return the line about a `change` event: the new values of a link or a node."""
    before, after = event.get("before") or {}, event.get("after") or {}
    values = (
        f"{name.split('_')[0]} {_spoken_as(name, before.get(name))} -> {_spoken_as(name, after[name])}"
        for name in after
    )
    direction = f" from {event['from']} to {event.get('to')}" if event.get("from") else ""
    where = f"node {event['node']}" if event.get("node") else f"link {event.get('name')}{direction}"
    return f"change: {where}: {', '.join(values) or event.get('what')}"


def _spoken_as(name: str, value: Any) -> str:
    """Return the value with the unit that the field's name ends in."""
    if name.endswith("_bit_s"):
        return spoken_rate(value)
    found = number(value)
    if name.endswith("_ratio"):
        return MISSING if found is None else f"{100 * found:.3g}%"
    return spoken_time(found)
