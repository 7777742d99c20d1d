"""The mean over seeds and its 95 % interval, by Student's t.

For n independent values that are about normal, the interval mean ± t · s / √n holds the true mean in 95 of 100 cases,
where s is the sample's standard deviation and t the 97.5th percentile of Student's t distribution with n - 1 degrees of
freedom. Runs of one seed repeat each other and are no independent values: their mean counts once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

COVERAGE = 0.95


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds, and how sure it is."""

    mean: float
    half_width: float | None
    """None for one seed: it says nothing of others."""
    seeds: int
    runs: int
    """Number of runs that have a value."""
    values: tuple[float, ...]
    """Value of each seed, in the order of seeds; the mean over its repeats."""

    @property
    def low(self) -> float | None:
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        return None if self.half_width is None else self.mean + self.half_width


def estimate(values_of_seed: Mapping[int, Iterable[float]]) -> Estimate | None:
    """None where there is no value at all."""
    values = {seed: found for seed, given in values_of_seed.items() if (found := list(given))}
    if not values:
        return None
    means = [fmean(values[seed]) for seed in sorted(values)]
    half_width = None
    if len(means) > 1:
        half_width = student_t(len(means) - 1) * stdev(means) / math.sqrt(len(means))
    return Estimate(fmean(means), half_width, len(means), sum(map(len, values.values())), tuple(means))


@functools.cache
def student_t(freedom: int, coverage: float = COVERAGE) -> float:
    """The t with P(|T| < t) = coverage, for a whole number of degrees of freedom.

    >>> round(student_t(4), 3)
    2.776
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # t = √freedom · tan(angle), and the angle is found by halving
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < coverage else (low, middle)
    return math.sqrt(freedom) * math.tan(high)


def _within(angle: float, freedom: int) -> float:
    """P(|T| < √freedom · tan(angle)): Abramowitz and Stegun, formulas 26.7.3 (odd) and 26.7.4 (even), both finite."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (power - 1) / power
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
