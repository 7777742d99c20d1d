"""Codes of few bits, packed: one bit is one bit on the wire."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK, chunks

WIDTHS = (1, 2, 4, 8)


def packed_bytes(count: int, bits: int) -> int:
    """Bytes that `count` codes of `bits` bits take."""
    return -(-count * bits // 8)


class Packer:
    """Packs `count` codes of `bits` bits each, 1, 2, 4 or 8.

    A byte holds 8 / bits codes, in planes: with m = packed_bytes(count, bits), byte i has the codes i, i + m, i + 2 m,
    ..., the first in its lowest bits; places beyond the last code are 0. Planes are stretches of memory that are read
    and written in order, which interleaved codes are not.
    """

    def __init__(self, count: int, bits: int) -> None:
        assert bits in WIDTHS, f"codes of {bits} bits; known: {WIDTHS}"
        self.count, self.bits = count, bits
        self.size_bytes = packed_bytes(count, bits)

    def planes(self) -> list[slice]:
        """Return the range of codes that each plane holds; the last ones may be short or empty."""
        m = self.size_bytes
        return [slice(min(j * m, self.count), min((j + 1) * m, self.count)) for j in range(8 // self.bits)]

    def pack(self, codes: Tensor) -> Tensor:
        """Return the packed codes: (size_bytes,) uint8.

        Args:
            codes: (count,) uint8 or bool, below 2**bits.
        """
        assert codes.dtype in (torch.uint8, torch.bool), f"codes of {codes.dtype}"
        codes = codes.view(torch.uint8)
        if self.bits == 8:
            return codes.clone()
        packed = torch.zeros(self.size_bytes, dtype=torch.uint8, device=codes.device)
        step = CHUNK if codes.device.type == "cpu" else max(self.size_bytes, 1)
        for start in range(0, self.size_bytes, step):
            for index, plane in enumerate(self.planes()):
                piece = codes[plane][start : start + step]
                shifted = piece << index * self.bits if index else piece
                packed[start : start + len(piece)].bitwise_or_(shifted)
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """Return the codes, (count,) uint8."""
        planes = torch.empty(8 // self.bits, self.size_bytes, dtype=torch.uint8, device=packed.device)
        shifts = _shifts(self.bits, packed.device)
        for piece in chunks(packed):
            codes = torch.bitwise_right_shift(packed[piece], shifts, out=planes[:, piece])
            codes.bitwise_and_((1 << self.bits) - 1)
        return planes.view(-1)[: self.count]


class SignBits:
    """Packs signs, one bit a value, 1 where a value is below zero.

    Byte i has values 8 i to 8 i + 7, the first in its lowest bit; places beyond the last value are 0. Interleaved,
    unlike `Packer`: a product of eight bits with the powers of two packs them, exact in float32 whatever the order of
    the sum, and a table of 256 words unpacks them.

    Args:
        most: values that one call may have; float32 `scratch` for as many is kept, and used by each call.
    """

    def __init__(self, most: int, device: torch.device) -> None:
        size_bytes = packed_bytes(most, 1)
        self.scratch = torch.empty(8 * size_bytes, dtype=torch.float32, device=device)
        self._bytes = torch.empty(size_bytes, dtype=torch.float32, device=device)
        self._rows = torch.empty(size_bytes, dtype=torch.int32, device=device)
        self._words = torch.empty(size_bytes, dtype=torch.int64, device=device)
        self._weights, self._table = _weights(device), _table(device)

    def pack(self, values: Tensor, packed: Tensor, below: Tensor | float = 0.0) -> None:
        """Fill `packed` with the signs of `values`.

        Args:
            values: (n,) float32.
            packed: (packed_bytes(n, 1),) uint8.
            below: A bit is 1 where a value is below this; of n values, or one.
        """
        count, size_bytes = values.numel(), packed.numel()
        bits = self.scratch[: 8 * size_bytes]
        if count < len(bits):
            bits[count:] = 0.0
        torch.lt(values, below, out=bits[:count])
        packed.copy_(torch.mv(bits.view(-1, 8), self._weights, out=self._bytes[:size_bytes]))

    def unpack(self, packed: Tensor, out: Tensor | None = None) -> Tensor:
        """Return (8 * len(packed),) float32, -1 where a bit is 1, else 1.

        The result is in `out`, contiguous, if given, else in scratch that holds until the next call.
        """
        size_bytes = packed.numel()
        signs = self.scratch[: 8 * size_bytes] if out is None else out
        rows = self._rows[:size_bytes].copy_(packed)
        words = torch.index_select(self._table, 0, rows, out=self._words[:size_bytes])
        return signs.copy_(words.view(torch.int8))


@functools.cache
def _weights(device: torch.device) -> Tensor:
    return torch.tensor([float(1 << bit) for bit in range(8)], device=device)


@functools.cache
def _table(device: torch.device) -> Tensor:
    """Return (256,) int64: the eight signs of each byte, one a byte, since whole words are read in one go."""
    rows = [[-1 if byte >> bit & 1 else 1 for bit in range(8)] for byte in range(256)]
    return torch.tensor(rows, dtype=torch.int8, device=device).view(torch.int64).view(-1)


@functools.cache
def _shifts(bits: int, device: torch.device) -> Tensor:
    """Return (8 / bits, 1) uint8: how far up in a byte each plane's code lies."""
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=device).unsqueeze(1)
