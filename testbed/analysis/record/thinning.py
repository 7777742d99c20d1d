"""Curves with fewer points and the same look."""

from __future__ import annotations

import math
from collections.abc import Sequence

from testbed.analysis.record.record import Point

POINTS_PER_CURVE = 600


def thin(points: Sequence[Point], most: int = POINTS_PER_CURVE) -> list[Point]:
    """Return at most `most` points, in their order: of each slice of the curve its first, lowest, highest and last.

    No peak is lost, and what lies between two slices, a step too, stays as it is. Jugel et al., M4: A
    Visualization-Oriented Time Series Data Aggregation, VLDB 2014; by number, not by time.
    """
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / max(1, most // 4))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        low = min(stretch, key=lambda index: points[index][1])
        high = max(stretch, key=lambda index: points[index][1])
        kept += [points[index] for index in sorted({stretch[0], low, high, stretch[-1]})]
    return kept
