"""The table of the README's first command."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.first_try.command import was_restarted
from experiments.common.tables import Found, disturbed, table


def first_try_wan1g(points: Sequence[Found]) -> str:
    """Return a row for each time, and the worst of all."""
    rows = [
        [
            str(point["asked"]["repeat"] + 1),
            point["result"]["verdict"] + (", restarted" if was_restarted(point["result"]) else "") + disturbed(point),
            f"{point['result']['dilation']:g}",
            f"{point['result']['wall_s']:.0f}",
        ]
        for point in sorted(points, key=lambda one: one["asked"]["repeat"])
    ]
    valid = sum(point["result"]["verdict"] == "valid" for point in points)
    slowest_s = max(point["result"]["wall_s"] for point in points)
    return f"{valid} of {len(points)} `valid`, the slowest in {slowest_s:.0f} s.\n\n" + table(
        ("run", "verdict", "k", "wall, s"), rows
    )
