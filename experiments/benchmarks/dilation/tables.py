"""The table of one transfer over one link at several dilations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.common.tables import Found, by, number, table

BULK_TOLERANCE, ALL_REDUCE_TOLERANCE = 0.03, 0.05


def dilation(points: Sequence[Found]) -> str:
    """Medians of the warm calls of all repeats together; "each" is the median of one repeat."""
    results: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for point in points:
        results.setdefault(by("what", "congestion", "k")(point), []).append(point["result"])
    medians = {key: statistics.median(s for one in found for s in one["warm_s"]) for key, found in results.items()}
    rows = []
    for (what, congestion, k), found in sorted(results.items()):
        base = medians.get((what, congestion, 1))
        off = medians[what, congestion, k] / base - 1 if base else None
        tolerance = BULK_TOLERANCE if what == "bulk" else ALL_REDUCE_TOLERANCE
        has_target = congestion == "reno" and 1 < k <= 4
        rows.append(
            [
                "20 MB to the last byte" if what == "bulk" else "all-reduce of 10 MB, 4 ranks",
                congestion,
                f"{k:g}",
                number(statistics.median(one["first_s"] for one in found), ".3f"),
                " ".join(f"{statistics.median(one['warm_s']):.3f}" for one in found),
                number(medians[what, congestion, k], ".3f"),
                number(off, "+.1f", 100),
                ("inside" if off is not None and abs(off) <= tolerance else "outside") if has_target else "reported",
            ]
        )
    heads = ("transfer", "tcp", "k", "first, s", "each repeat, s", "median, s", "against k=1: %", "target")
    return table(heads, rows)
