"""Whole numbers modulo a prime as arrays: exact sums and products, uniform elements, four bytes each on the wire."""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.core.parameters import raise_all, whole

Elements = NDArray[np.int64]
"""Each in [0, p)."""

MERSENNE_31 = 2**31 - 1
ELEMENT_BYTES = 4
_WIRE = np.dtype("<u4")
_CHUNK = 64
"""Terms of a scalar product that a float64 holds exactly: 2^31 * 2^16 * 2^6 = 2^53."""


class Randomness:
    """Uniform elements, expanded from a seed by SHAKE-256 (FIPS 202) over the seed and a counter.

    Args:
        seed: the same gives the same elements; for tests. None: 32 bytes of the system's cryptographic source.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._seed = hashlib.sha3_256(seed).digest() if seed is not None else secrets.token_bytes(32)
        self._count = 0

    def draw(self, size_bytes: int) -> bytes:
        block = self._seed + self._count.to_bytes(8, "little")
        self._count += 1
        return hashlib.shake_256(block).digest(size_bytes)

    def words(self, count: int) -> NDArray[np.uint32]:
        """Uniform in [0, 2^32)."""
        return np.frombuffer(self.draw(_WIRE.itemsize * count), _WIRE)

    def elements(self, count: int, prime: int) -> Elements:
        """Uniform in [0, prime): those drawn beyond it are drawn again, so that none is likelier than another."""
        mask, found = np.uint32((1 << (prime - 1).bit_length()) - 1), np.empty(0, np.int64)
        while len(found) < count:
            drawn = (self.words(count - len(found)) & mask).astype(np.int64)
            found = np.concatenate([found, drawn[drawn < prime]])
        return found


@dataclass(frozen=True)
class PrimeField:
    """Arithmetic modulo `prime`, which cannot overflow: elements are below 2^31, products below 2^62.

    Raises:
        ValueError: not a prime from 3 to 2^31 - 1.
    """

    prime: int = MERSENNE_31

    def __post_init__(self) -> None:
        raise_all(prime_fault(self.prime))

    def sum(self, arrays: list[Elements]) -> Elements:
        """Of arrays of one shape, element by element; what is negative in them counts as such."""
        total = np.zeros_like(arrays[0])
        for array in arrays:
            total = (total + array) % self.prime
        return total

    def inverse(self, values: Elements) -> Elements:
        """values^(p - 2), which times the value is 1 (Fermat); of a 0 it is 0."""
        result, power = np.ones_like(values), values
        for bit in bin(self.prime - 2)[:1:-1]:
            if bit == "1":
                result = result * power % self.prime
            power = power * power % self.prime
        return result

    def matmul(self, left: Elements, right: Elements) -> Elements:
        """(a, k) by (k, b), as float64 products that stay whole numbers below 2^53."""
        total = np.zeros((left.shape[0], right.shape[1]), np.int64)
        for begin in range(0, left.shape[1], _CHUNK):
            ours, theirs = left[:, begin : begin + _CHUNK], right[begin : begin + _CHUNK].astype(np.float64)
            high = ((ours >> 16).astype(np.float64) @ theirs).astype(np.int64) % self.prime
            low = ((ours & 0xFFFF).astype(np.float64) @ theirs).astype(np.int64)
            total = (total + (high << 16) + low) % self.prime
        return total

    def lagrange(self, known: Elements, wanted: Elements) -> Elements:
        """Matrix (wanted, known) that takes a polynomial's values at points `known` to those at points `wanted`, of
        degree below the number of `known`.

        Args:
            known, wanted: all distinct, and none in both.
        """
        apart = (known[:, None] - known[None, :]) % self.prime
        np.fill_diagonal(apart, 1)
        away = (wanted[:, None] - known[None, :]) % self.prime
        weights = self.inverse(self._product(apart))
        return self._product(away)[:, None] * (self.inverse(away) * weights[None, :] % self.prime) % self.prime

    def to_bytes(self, elements: Elements) -> bytes:
        """Little-endian, `ELEMENT_BYTES` each."""
        return elements.astype(_WIRE).tobytes()

    def from_bytes(self, body: bytes, count: int) -> Elements:
        """
        Raises:
            ValueError: another number of bytes, or one is no element.
        """
        if len(body) != ELEMENT_BYTES * count:
            raise ValueError(f"{len(body)} bytes, expected {ELEMENT_BYTES * count} of {count} elements")
        return self.checked(np.frombuffer(body, _WIRE).astype(np.int64), count)

    def checked(self, elements: Elements, count: int) -> Elements:
        """
        Raises:
            ValueError: not one row of `count` elements.
        """
        if elements.dtype != np.int64 or elements.shape != (count,):
            raise ValueError(f"{elements.dtype} of shape {elements.shape}, expected int64 of shape ({count},)")
        if count and not (elements.min() >= 0 and elements.max() < self.prime):
            raise ValueError(f"elements from {elements.min()} to {elements.max()}: must be in [0, {self.prime})")
        return elements

    def _product(self, rows: Elements) -> Elements:
        """Of each row."""
        result = np.ones(rows.shape[0], np.int64)
        for column in rows.T:
            result = result * column % self.prime
        return result


def prime_fault(prime: object) -> str | None:
    """What is wrong with it as a field's."""
    fault = whole("prime", prime, 3, MERSENNE_31)
    if fault or not isinstance(prime, int):
        return fault
    divisor = next((one for one in range(2, math.isqrt(prime) + 1) if prime % one == 0), None)
    return f"prime={prime}: divided by {divisor}; take 2**31 - 1" if divisor else None
