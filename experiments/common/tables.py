"""Tables in Markdown: cells of figures, points by what was asked, and extracts of which a CSV file has the whole."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
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


# What a page shows of a table; docs/tables/NAME.csv has all of it.

Row = Mapping[str, str]
"""Cells of a row by the heads of their columns; `title` has the line above the table."""
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Extract:
    """Rows and columns of a table that its page shows.

    Args:
        rows: True for a row that is shown; without it, all are.
        heads: Heads of the columns that are shown, those of them that a table has; empty: all.
    """

    rows: Callable[[Row], bool] = lambda _row: True
    heads: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Table:
    heads: list[str]
    rows: list[dict[str, str]]

    @classmethod
    def read(cls, lines: list[str], title: str) -> _Table:
        named, _, *rows = [[cell.strip() for cell in _CELLS.split(line.strip())[1:-1]] for line in lines]
        counts = [named[: index + 1].count(head) for index, head in enumerate(named)]
        heads = [f"{head} ({count})" if count > 1 else head for head, count in zip(named, counts, strict=True)]
        return cls(heads, [{"title": title, **dict(zip(heads, row, strict=True))} for row in rows])

    def shown(self, extract: Extract) -> list[str]:
        heads = [head for head in self.heads if not extract.heads or head in extract.heads]
        rows = [[row[head] for head in heads] for row in self.rows if extract.rows(row)]
        lines = [heads, ["---"] * len(heads), *rows] if rows else []
        return [f"| {' | '.join(line)} |" for line in lines]


def extracted(content: str, name: str, page: str, extract: Extract) -> str:
    """Return what a page shows of `content`, with a link to docs/tables/NAME.csv.

    Args:
        page: Path of the page below the clone.
    """
    up = "../" * (len(PurePosixPath(page).parts) - 2)
    parts = [*_shown(content, extract), f"All rows: [{name}.csv]({up}tables/{name}.csv)."]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(parts)).strip()


def write_csv(content: str, name: str, root: Path) -> None:
    """Write all tables of `content` to docs/tables/NAME.csv below `root`."""
    path = root / "docs" / "tables" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(csv_text(content))


def csv_text(content: str) -> str:
    """Return all tables of a text as one CSV file, with a column `title` if there are several."""
    tables = [part for part in _parts(content) if isinstance(part, _Table)]
    heads = list(dict.fromkeys([*(["title"] if len(tables) > 1 else []), *(h for one in tables for h in one.heads)]))
    file = io.StringIO()
    writer = csv.DictWriter(file, heads, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for one in tables for row in one.rows)
    return file.getvalue()


def _parts(content: str) -> Iterator[str | _Table]:
    """Yield paragraphs and tables in their order."""
    title = ""
    for is_table, lines in groupby(content.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            yield _Table.read(list(lines), title.strip("* :"))
            continue
        text = "\n".join(lines).strip()
        title = text.splitlines()[-1] if text else title
        yield text


def _shown(content: str, extract: Extract) -> Iterator[str]:
    """Yield what is shown; a title, which ends without a full stop, goes with its table."""
    parts = list(_parts(content))
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        if isinstance(part, _Table):
            yield "\n".join(part.shown(extract))
        elif isinstance(after, _Table) and not after.shown(extract) and not part.endswith("."):
            yield part.rpartition("\n")[0]
        else:
            yield part
