"""What the tables are made of: cells of figures, Markdown, points by what was asked."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Found = dict[str, Any]
"""A point as it lies in the JSON file."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def number(value: float | None, form: str = ".2f", scale: float = 1.0) -> str:
    return "-" if value is None else format(value * scale, form)


def percent_off(value: float | None, asked: float) -> str:
    return "-" if value is None else f"{(value / asked - 1) * 100:+.2f}"


def disturbed(point: Found) -> str:
    return f" (others used {point['others_cores']:.1f} cores)" if point["is_disturbed"] else ""


def cores(asked: Found) -> str:
    return "busy" if asked["busy"] else "kept awake" if asked.get("awake") else "idle"


def by(*keys: str) -> Callable[[Found], tuple[Any, ...]]:
    return lambda point: tuple(point["asked"][key] for key in keys)


def grouped(points: Iterable[Found], *keys: str) -> dict[tuple[Any, ...], list[Found]]:
    groups: dict[tuple[Any, ...], list[Found]] = defaultdict(list)
    for point in points:
        groups[by(*keys)(point)].append(point["result"])
    return dict(sorted(groups.items()))


def median(results: Sequence[Found], key: str) -> float:
    return float(statistics.median(result[key] for result in results))
