"""docs/tables/commits.csv: when the points of each benchmark were measured, and at which commits of this clone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TABLE = Path("docs") / "tables" / "commits.csv"
COLUMNS = ("benchmark", "points", "first measured", "last measured", "commits")
NOT_RECORDED = "not recorded"
"""Word for points measured before points named their commit; date and hash of the code are in the JSON file."""
_SHORT = 12


def text(found: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """Return the table, a row for each benchmark that has points, by name."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, points in sorted((name, list(points)) for name, points in found.items()):
        if points:
            days = sorted(point["measured_at"][:10] for point in points)
            commits = sorted({_short(point.get("commit")) for point in points})
            writer.writerow([name, len(points), days[0], days[-1], " ".join(commits)])
    return output.getvalue()


def _short(commit: str | None) -> str:
    """Return the first digits of a commit, with the `+` of one that files differed from."""
    return NOT_RECORDED if commit is None else commit[:_SHORT] + "+" * commit.endswith("+")


def write(found: Mapping[str, Iterable[Mapping[str, Any]]], root: Path) -> None:
    """Write the table below `root`."""
    (root / TABLE).parent.mkdir(parents=True, exist_ok=True)
    (root / TABLE).write_text(text(found))
