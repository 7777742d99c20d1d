"""Entries of random samples, which every rank that knows the stream can find again."""

from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.streams import Stream


def strata(numel: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Return (count + 1,) int64: where each of `count` ranges of nearly equal length begins, and the end."""
    return (
        torch.arange(count + 1, dtype=torch.int64, device=device).mul_(numel).div_(max(count, 1), rounding_mode="floor")
    )


def one_of_each(stream: Stream, starts: Tensor) -> Tensor:
    """Return (count,) int64, ascending: one entry of each range, every one equally likely.

    So all are different, lie in order in memory, and no entry is drawn with any other of its range. An entry of a
    range of length l is drawn with probability 1 / l, which is off by l / 2**32 at most.
    """
    lengths = starts[1:] - starts[:-1]
    drawn = stream.bits(0, len(lengths), starts.device).to(torch.int64).bitwise_and_(0xFFFFFFFF)
    return starts[:-1] + (drawn * lengths >> 32)


def sample(stream: Stream, numel: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Return (count,) int64, ascending: `count` of `numel` entries, one of each of as many ranges of like length."""
    return one_of_each(stream, strata(numel, count, device))
