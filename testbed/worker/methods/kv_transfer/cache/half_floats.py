"""Floats of 16 bits that are rounded to one side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def half_below(numbers: NDArray[np.float64]) -> NDArray[np.float16]:
    """The greatest floats of 16 bits that are not above; minus infinity beyond their range."""
    with np.errstate(over="ignore"):
        halves = numbers.astype(np.float16)
        return np.where(halves > numbers, np.nextafter(halves, np.float16(-np.inf)), halves)


def half_above(numbers: NDArray[np.float64]) -> NDArray[np.float16]:
    """The least floats of 16 bits that are not below; infinity beyond their range."""
    return -half_below(-numbers)
