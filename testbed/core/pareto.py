"""Points that no other beats: less is better in each of two respects."""

from __future__ import annotations

from collections.abc import Iterable

Point = tuple[float, float]


def front(points: Iterable[Point]) -> list[Point]:
    """Those to which no other is as good in both and better in one, from the least in the first to the most.

    >>> front([(1, 9), (2, 4), (3, 4), (4, 5), (5, 1)])
    [(1, 9), (2, 4), (5, 1)]
    """
    found: list[Point] = []
    for point in sorted(set(points)):
        if not found or point[1] < found[-1][1]:
            found.append(point)
    return found
