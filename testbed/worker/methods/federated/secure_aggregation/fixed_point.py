"""Floats as elements of a prime field whose sum over all clients is that of the floats, to quantisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.core.parameters import choice, number, raise_all, whole
from testbed.worker.methods.federated.secure_aggregation.prime_field import (
    MERSENNE_31,
    Elements,
    Randomness,
    prime_fault,
)

NEAREST, STOCHASTIC = "nearest", "stochastic"
ROUNDINGS = (NEAREST, STOCHASTIC)


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """x becomes the whole number q about x / step, and q < 0 the element p + q.

    A sum of n clients is off by n * step / 2 at most where each rounds to the nearest; by less than n * step, and by 0
    in expectation, where each rounds up with the probability of what it cuts off. Sums alone: a mean with weights is a
    sum of values that each client has weighted.

    Raises:
        ValueError: a parameter is out of its range, or a sum could wrap: clients * ceil(largest / step) must be at most
            (p - 1) / 2. All of it, one a line.
    """

    clients: int
    """The most whose values are summed (n)."""
    largest: float
    """Magnitude of a value; a larger one is refused, not clipped."""
    step: float
    """Between two neighbouring values."""
    rounding: str = NEAREST
    prime: int = MERSENNE_31

    def __post_init__(self) -> None:
        faults = (
            whole("clients", self.clients, 1),
            number("largest", self.largest, above=0, below=math.inf),
            number("step", self.step, above=0, below=math.inf),
            choice("rounding", self.rounding, ROUNDINGS),
            prime_fault(self.prime),
        )
        raise_all(*faults)
        half, levels = (self.prime - 1) // 2, self.largest / self.step
        if levels <= half and self.clients * math.ceil(levels) <= half:
            return
        each = half // self.clients
        cure = f"step={self.largest / each:.4g} or more" if each else f"{half} clients or fewer"
        raise ValueError(
            f"step={self.step:g}: sums of {self.clients} values of up to {levels:.4g} steps wrap beyond {half};"
            f" take {cure}, or a smaller largest={self.largest:g}"
        )

    def encode(self, values: NDArray[np.floating], randomness: Randomness | None = None) -> Elements:
        """
        Args:
            values: one row.
            randomness: for "stochastic".

        Raises:
            ValueError: values that are not finite or too large; how many there are.
        """
        exact = np.asarray(values, np.float64)
        beyond = int(np.count_nonzero(~(np.abs(exact) <= self.largest)))  # NaN is not at most anything
        if beyond:
            raise ValueError(
                f"{beyond} of {exact.size} values are beyond largest={self.largest:g} or not finite; clip them first"
            )
        steps = exact / self.step
        if self.rounding == NEAREST:
            quantised = np.rint(steps)
        else:
            if randomness is None:
                raise ValueError("rounding=stochastic: needs randomness; give it")
            quantised = np.floor(steps)
            quantised += randomness.words(exact.size) / 2.0**32 < steps - quantised
        elements: Elements = quantised.astype(np.int64) % self.prime
        return elements

    def decode(self, summed: Elements) -> NDArray[np.float64]:
        """Of a sum of up to `clients` encodings."""
        signed = np.where(summed > self.prime // 2, summed - self.prime, summed)
        values: NDArray[np.float64] = signed * self.step
        return values
