"""Random numbers as a function of a key and a position: without state, and with the same bits on every device."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK

_GOLDEN = -1640531527
"""2**32 over the golden ratio, odd; as int32."""
_FIRST, _SECOND = 0x21F0AAAD, 0xD35A2D97 - 2**32
"""Multipliers of a 32-bit mixing function of low bias: Wellons, "Hash Function Prospector", 2018, lowbias32."""
_MASK = 2**32 - 1


@dataclass(frozen=True)
class Stream:
    """Random numbers of one key. Each follows from its position alone, so any range of positions can be drawn.

    They come from a 32-bit mixing function of the position, keyed before and within. Good for rounding, masks and
    sketches; not for secrets. Two keys have numbers in common by chance only; positions go up to 2**32.
    """

    key: int
    """Key of 64 bits."""

    def bits(self, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Return numbers `start` to `start + count - 1`: (count,) int32, every bit fair."""
        low, high = _signed(self.key & _MASK), _signed(self.key >> 32)
        return _mix_(_ramp(count, device) + _signed((start * _GOLDEN + low) & _MASK), high)

    def uniform(self, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Return (count,) float32 in [0, 1), multiples of 2**-24."""
        return (self.bits(start, count, device) >> 8).bitwise_and_(0xFFFFFF).float().mul_(2.0**-24)

    def dither(self, start: int, count: int, device: torch.device | str = "cpu", *, above: float = 0.0) -> Tensor:
        """Return (count,) float32 in (0, 1) for stochastic rounding, at half the cost of `uniform`.

        They are odd multiples of 2**-17.

        Args:
            start: First position; even.
            above: Added to each, at no cost; exact up to 127.
        """
        assert start % 2 == 0, "two numbers come of one position"
        halves = self.bits(start // 2, (count + 1) // 2, device).view(torch.int16)[:count]
        drawn = halves.float()
        # in one pass; the product is exact, so that it does not matter whether a device rounds it
        return torch.add(torch.tensor(0.5 + 2.0**-17 + above, device=device), drawn, alpha=2.0**-16, out=drawn)

    def signs(self, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Return (count,) float32, each 1 or -1."""
        return (self.bits(start, count, device) >> 31).bitwise_or_(1).float()

    def integer(self, below: int) -> int:
        """Return one number from 0 to `below` - 1, from a second stream.

        It is nearly uniform: probabilities are off by `below` / 2**62 at most.
        """
        high, low = (int(x) & 0x7FFFFFFF for x in Stream(self.key ^ 0x5DEECE66D).bits(0, 2))
        return (high << 31 | low) % below


def hashes(words: Tensor, key: int) -> Tensor:
    """Return (n,) int32, every bit fair: the mixing function of `words`, (n,) int32, keyed before by 32 bits."""
    return _mix_(words.mul(_GOLDEN).add_(_signed(key & _MASK)), 0)


def _mix_(x: Tensor, within: int) -> Tensor:
    """Mix int32 in place, keyed within."""
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(_FIRST)
    x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).bitwise_xor_(within).mul_(_SECOND)
    return x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF))


def _ramp(count: int, device: torch.device | str) -> Tensor:
    """(count,) int32: multiples of _GOLDEN from 0 on; not to be changed."""
    if count > CHUNK:
        return torch.arange(count, dtype=torch.int32, device=device).mul_(_GOLDEN)
    return _kept_ramp(str(device))[:count]


@functools.cache
def _kept_ramp(device: str) -> Tensor:
    return torch.arange(CHUNK, dtype=torch.int32, device=device).mul_(_GOLDEN)


def _signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word
