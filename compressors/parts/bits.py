"""Streams of bits for codecs of the processor: written and read by whole arrays, never code by code."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from compressors.base.payload import PayloadError

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Device = torch.device
CPU = Device("cpu")


class BitWriter:
    """Collects bits; the first is the lowest of the first byte, and the last byte is filled up with zeros."""

    def __init__(self) -> None:
        self._pieces: list[NDArray[Any]] = []

    def put(self, bits: NDArray[Any]) -> None:
        """Append bits.

        Args:
            bits: 0 or 1 each.
        """
        self._pieces.append(bits.astype(np.uint8))

    def planes(self, codes: Integers, width: int) -> None:
        """`width` bits of each code: the lowest of all codes first, then the second of all, and so on."""
        for bit in range(width):
            self.put(codes >> bit & 1)

    def unary(self, counts: Integers) -> None:
        """Each number as so many zeros and a one. Nothing may follow."""
        ends = np.cumsum(counts + 1)
        bits = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
        bits[ends - 1] = 1
        self.put(bits)

    def packed(self) -> Bytes:
        pieces = self._pieces or [np.zeros(0, dtype=np.uint8)]
        return np.packbits(np.concatenate(pieces), bitorder="little")


class BitReader:
    """The opposite; each method is given what its like was given, counts instead of codes.

    Raises:
        PayloadError: in each method, if there are fewer bits than asked for, or others than a writer makes.
    """

    def __init__(self, data: Bytes, named: str) -> None:
        """Take the bytes to be read.

        Args:
            data: Bytes, which take 8 times their size while they are read; the caller has checked their length.
            named: Name of the bits' owner, for errors.
        """
        self._bits = np.unpackbits(data, bitorder="little")
        self._next = 0
        self._named = named

    def take(self, count: int) -> Bytes:
        if count > len(self._bits) - self._next:
            raise PayloadError(f"{self._named}: {len(self._bits)} bits are too few")
        self._next += count
        return self._bits[self._next - count : self._next]

    def planes(self, count: int, width: int) -> Integers:
        codes = np.zeros(count, dtype=np.int64)
        for bit in range(width):
            codes |= self.take(count).astype(np.int64) << bit
        return codes

    def unary(self, count: int) -> Integers:
        ends = np.flatnonzero(self._bits[self._next :])
        if len(ends) != count:
            raise PayloadError(f"{self._named}: {len(ends)} numbers in unary, expected {count}")
        self._next += int(ends[-1]) + 1 if count else 0
        return np.diff(ends, prepend=-1) - 1

    def end(self) -> None:
        rest = self._bits[self._next :]
        if len(rest) >= 8 or rest.any():
            raise PayloadError(f"{self._named}: {len(rest)} bits are left over")
