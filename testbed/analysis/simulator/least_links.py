"""The least that links must be for a step time: the lowest rate at a round trip, the longest round trip at any rate.

Both are looked for by halving on a grid of round figures, one a percent or so from the next, so that what is found can
be asked for as it is printed. A step is taken to be no longer over a faster or a nearer link.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median_high
from typing import Any

from testbed.core.spec.link_profile import MAX_RATE_BIT_S, MIN_RATE_BIT_S

_PER_DECADE = 200
_DIGITS = 3
MIN_RTT_S, MAX_RTT_S = 1e-4, 10.0


@dataclass(frozen=True)
class Interval:
    """A figure and the range that it may be in; None: there is none, however far one goes."""

    estimate: float | None
    low: float | None
    high: float | None

    def with_estimate(self, value: float) -> Interval:
        """Another one, which the range takes in."""
        low = value if self.low is None else min(self.low, value)
        return Interval(value, low, None if self.high is None else max(self.high, value))

    def to_json(self) -> dict[str, Any]:
        return {"estimate": self.estimate, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Targets:
    """Of predicted step times, so that real ones are at most what was asked for."""

    asked_s: float
    strict_s: float
    """Where predictions are too short, as far as they were."""
    lax_s: float
    """Where they are too long."""


def rates() -> list[float]:
    """From the slowest link there can be to the fastest, in bit/s."""
    return _grid(MIN_RATE_BIT_S, MAX_RATE_BIT_S)


def round_trips() -> list[float]:
    """In seconds."""
    return _grid(MIN_RTT_S, MAX_RTT_S)


def least_rate(steps_s: list[Callable[[float], float]], targets: Targets) -> Interval:
    """
    Args:
        steps_s: by rate in bit/s, of each measurement of what a step computes.
    """
    grid = rates()

    def of(step_s: Callable[[float], float], target_s: float) -> float:
        return _first(grid, lambda rate: step_s(rate) <= target_s)

    return Interval(
        _finite(median_high(of(step_s, targets.asked_s) for step_s in steps_s)),
        _finite(min(of(step_s, targets.lax_s) for step_s in steps_s)),
        _finite(max(of(step_s, targets.strict_s) for step_s in steps_s)),
    )


def longest_round_trip(steps_s: list[Callable[[float], float]], targets: Targets) -> Interval:
    """
    Args:
        steps_s: by round trip in seconds, likewise.
    """
    grid = round_trips()[::-1]

    def of(step_s: Callable[[float], float], target_s: float) -> float:
        """Infinite where even the shortest is too long: as a rate that is too high."""
        return _first(grid, lambda rtt_s: step_s(rtt_s) <= target_s)

    found = [of(step_s, targets.asked_s) for step_s in steps_s]
    strict = [of(step_s, targets.strict_s) for step_s in steps_s]
    lax = [of(step_s, targets.lax_s) for step_s in steps_s]
    return Interval(
        _finite(sorted(found, key=_as_length)[(len(found) - 1) // 2]),
        _finite(min(strict, key=_as_length)),
        _finite(max(lax, key=_as_length)),
    )


def _as_length(rtt_s: float) -> float:
    """None that will do is shorter than all."""
    return 0.0 if math.isinf(rtt_s) else rtt_s


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _grid(least: float, most: float) -> list[float]:
    first, last = math.ceil(_PER_DECADE * math.log10(least)), math.floor(_PER_DECADE * math.log10(most))
    return [float(f"{10 ** (place / _PER_DECADE):.{_DIGITS - 1}e}") for place in range(first, last + 1)]


def _first(grid: list[float], suffices: Callable[[float], bool]) -> float:
    """The first that suffices, where all behind one that does do too; infinite where none does."""
    if not suffices(grid[-1]):
        return math.inf
    low, high = 0, len(grid) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(grid[middle]) else (middle + 1, high)
    return grid[high]
