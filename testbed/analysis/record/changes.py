"""Changes of links and nodes while a run went on, as curves."""

from __future__ import annotations

from testbed.analysis.record.record import Point, Record, is_finite


def change_times(record: Record) -> list[float]:
    """Return the moments at which something changed, in emulated seconds, each once."""
    return sorted({round(event["t_s"], 3) for event in record.of_kind("change") if is_finite(event["t_s"])})


def asked_over_time(
    record: Record, field: str, asked: dict[tuple[str, str], float]
) -> dict[tuple[str, str], list[Point]]:
    """Return the target of each direction (link, source) whose `field` was changed, from the beginning to the end.

    A point before and one after each change make it a curve of steps.
    """
    steps: dict[tuple[str, str], list[Point]] = {}
    for event in record.of_kind("change"):
        key, value = (event["name"], event["from"]), (event["after"] or {}).get(field)
        if key in asked and is_finite(value):
            points = steps.setdefault(key, [(0.0, asked[key])])
            points += [(event["t_s"], points[-1][1]), (event["t_s"], value)]
    end_s = max((event["t_s"] for event in record.events), default=0.0)
    return {key: [*points, (end_s, points[-1][1])] for key, points in steps.items()}
