"""What the tables are made of: cells of figures, Markdown, points by what was asked."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from testbed.analysis.comparison.intervals import student_t

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


def medians_table(
    points: Sequence[Found],
    key: str,
    first: tuple[str, Callable[[Any], str]],
    columns: Mapping[str, tuple[str, float, str]],
) -> str:
    """A row for each value of `key`, with the medians over its repeats.

    Args:
        first: head of the first column, and how it says a value.
        columns: by head: the figure, the factor and the format in which it is shown.
    """
    groups = grouped(points, key)
    marked = {by(key)(point) for point in points if point["is_disturbed"]}
    head, spoken = first
    rows = [
        [
            spoken(value),
            str(len(results)),
            *(f"{median(results, figure) * factor:{form}}" for figure, factor, form in columns.values()),
            "yes" if (value,) in marked else "",
        ]
        for (value,), results in groups.items()
    ]
    return table((head, "of", *columns, "others disturbed"), rows)


# Cells that tables of whole runs share.

RUN_HEADS = ("k", "late: %", "waiting for cores: %", "verdict")


def run_cells(results: Sequence[Found]) -> list[str]:
    verdicts = sorted({result["verdict"] for result in results})
    shares = (number(median(results, key), ".2f", 100) for key in ("late_share", "queued_share"))
    return [f"{median(results, 'dilation'):g}", *shares, ", ".join(verdicts)]


# Means of a few runs and what they leave open: 95 % intervals by Student's t.

HALF_A_POINT = 0.005


def half_width(values: Sequence[float]) -> float | None:
    """Of the 95 % interval of the mean; None of a single value."""
    if len(values) < 2:
        return None
    return student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def spread(values: Sequence[float], form: str, scale: float = 1.0) -> str:
    half, mean = half_width(values), number(statistics.fmean(values), form, scale)
    return mean if half is None else f"{mean} ± {number(half, form.replace('+', ''), scale)}"


def within(differences: Sequence[float], most: float) -> str:
    """Whether the mean is no more than `most` worse than the base, by the interval of these differences to it, seed by
    seed and below 0 where they are worse."""
    half, mean = half_width(differences), statistics.fmean(differences)
    if half is None:
        return "one seed"
    if mean - half >= -most:
        return "yes"
    return "no" if mean + half < -most else "open"
