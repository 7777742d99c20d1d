"""Curves and values of several seeds as one: the mean, and a band around it. Repeats of a seed count once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from testbed.analysis.comparison.intervals import estimate
from testbed.analysis.record.record import Point
from testbed.analysis.record.thinning import thin

_GRID_POINTS = 200

Curve = Sequence[Point]


@dataclass(frozen=True)
class Band:
    """Mean over seeds, and what surrounds it. All tuples have the same length."""

    x: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    mid: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def value_band(values_of_seed: Mapping[int, Sequence[float]], kind: str) -> tuple[float, float, float] | None:
    """Return (low, mean, high), or None where there is no value. One seed has no band: all three are its value."""
    found = estimate(values_of_seed)
    if found is None:
        return None
    if kind == "range":
        means = [fmean(values) for values in values_of_seed.values() if values]
        return min(means), found.mean, max(means)
    half = found.half_width or 0.0
    return found.mean - half, found.mean, found.mean + half


def curve_band(curves_of_seed: Mapping[int, Sequence[Curve]], kind: str, *, is_log: bool = False) -> Band:
    """Return the band where all curves have values; empty where they share no x.

    Args:
        is_log: True to interpolate along the logarithm of x.
    """
    found = {seed: [curve for curve in curves if curve] for seed, curves in curves_of_seed.items()}
    every = [curve for curves in found.values() for curve in curves]
    if not every:
        return Band()
    if len(every) == 1:
        x, y = (tuple(map(float, values)) for values in zip(*thin(every[0]), strict=True))
        return Band(x, y, y, y)
    grid = _shared_grid(every, is_log=is_log)
    lines = {seed: [_at(curve, grid, is_log=is_log) for curve in curves] for seed, curves in found.items()}
    rows = [
        value_band({seed: [float(line[index]) for line in curves] for seed, curves in lines.items()}, kind)
        for index in range(len(grid))
    ]
    low, mid, high = zip(*(row for row in rows if row is not None), strict=True) if rows else ((), (), ())
    return Band(tuple(map(float, grid)), low, mid, high)


def _shared_grid(curves: Sequence[Curve], *, is_log: bool) -> np.ndarray:
    """Return the x of all curves if they are the same, otherwise evenly spaced ones over what the curves share."""
    first = [x for x, _ in curves[0]]
    if len(first) <= _GRID_POINTS and all([x for x, _ in curve] == first for curve in curves):
        return np.array(first, dtype=float)
    low, high = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    if low > high:
        return np.array([])
    return np.geomspace(low, high, _GRID_POINTS) if is_log else np.linspace(low, high, _GRID_POINTS)


def _at(curve: Curve, grid: np.ndarray, *, is_log: bool) -> np.ndarray:
    x, y = np.array([x for x, _ in curve], dtype=float), np.array([y for _, y in curve], dtype=float)
    found: np.ndarray = np.interp(np.log(grid), np.log(x), y) if is_log else np.interp(grid, x, y)
    return found
