"""Points of `split_runs` are shown with the simulated ones of `split`, in its tables."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, number, table


def exposed(points: Sequence[Found]) -> str:
    """Return the exposed communication of each run, which `split` leaves out."""
    rows = [
        [point["asked"]["model"], point["asked"]["network"], strategy, way, number(run["exposed_s"], ".4f")]
        for point in points
        for strategy, ways in point["result"].items()
        for way, run in ways.items()
    ]
    return table(("model", "network", "strategy", "split by", "exposed communication, s"), rows)
