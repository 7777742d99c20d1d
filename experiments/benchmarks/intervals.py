"""Means of a few runs and what they leave open: 95 % intervals by Student's t."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from experiments.benchmarks.cells import number
from testbed.analysis.intervals import student_t

HALF_A_POINT = 0.005


def half_width(values: Sequence[float]) -> float | None:
    """Of the 95 % interval of the mean; None of a single value."""
    if len(values) < 2:
        return None
    return student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def spread(values: Sequence[float], form: str, scale: float = 1.0) -> str:
    half, mean = half_width(values), number(statistics.fmean(values), form, scale)
    return mean if half is None else f"{mean} ± {number(half, form.replace('+', ''), scale)}"


def within(differences: Sequence[float], most: float) -> str:
    """Whether the mean is no more than `most` worse than the base, by the interval of these differences to it, seed by
    seed and below 0 where they are worse."""
    half, mean = half_width(differences), statistics.fmean(differences)
    if half is None:
        return "one seed"
    if mean - half >= -most:
        return "yes"
    return "no" if mean + half < -most else "open"
