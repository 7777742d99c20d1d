"""The table of wall times in two clones."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.common.tables import Found, disturbed, table

_RAN = ("valid", "suspect", "invalid")


def first_try_cost(points: Sequence[Found]) -> str:
    """Return the ratios' median and mean, and a row for each point. A run that one of both refuses has no ratio."""
    rows, ratios = [], []
    for point in sorted(points, key=lambda one: (one["asked"]["overrides"], one["asked"]["repeat"])):
        old, new = point["result"]["old"], point["result"]["new"]
        ratio = new["wall_s"] / old["wall_s"] if {old["verdict"], new["verdict"]} <= set(_RAN) else None
        ratios += [] if ratio is None else [ratio]
        rows.append(
            [
                f"`{point['asked']['overrides']}`" + disturbed(point),
                *(f"{one['verdict']}, {one.get('dilation') or 0:g}" for one in (old, new)),
                *(f"{one['wall_s']:.0f}" for one in (old, new)),
                "-" if ratio is None else f"{ratio:.2f}",
            ]
        )
    commits = ", ".join(sorted({point["result"]["old"]["commit"] for point in points}))
    said = f"median {statistics.median(ratios):.2f}, mean {statistics.fmean(ratios):.2f}" if ratios else "none"
    heads = ("configuration", "old verdict, k", "new verdict, k", "old wall, s", "new wall, s", "new / old")
    return f"New over old ({commits}), of {len(ratios)} pairs: {said}.\n\n" + table(heads, rows)
