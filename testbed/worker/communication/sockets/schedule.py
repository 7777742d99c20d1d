"""Order in which one channel of a ring passes on the slices of a tensor: a pure plan, the same form on every rank.

A channel goes through its share in loops. In each, every rank has one chunk; a chunk travels round the ring once to be
summed and once more to be known, slice by slice. The next loop begins when this one has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MIN_SLICE_BYTES = 32 * 1024
"""Least bytes of a slice but the last of a chunk."""


@dataclass(frozen=True)
class Move:
    """One slice, as a range of elements: it is received, then sent; or only one of both."""

    start: int
    stop: int
    receives: bool
    reduces: bool
    """True if what is received is added, not stored."""
    sends: bool


def moves(start: int, stop: int, *, rank: int, size: int, chunk: int, slice_: int, least: int) -> Iterator[Move]:
    """Yield the moves of one channel in their order.

    Args:
        start: First element of the channel's share of the tensor; `stop` is the one after its last.
        chunk: Elements of a chunk.
        slice_: Elements of a slice.
        least: Least elements of a slice but the last of a chunk.
    """
    slices = max(1, chunk // slice_)
    while start < stop:
        part = min(chunk, -(-(stop - start) // size))
        width = max(-(-part // slices), least)
        for step in range(2 * size - 1):
            first = start + (rank - step) % size * part
            last = min(first + part, stop)
            for at in range(first, last, width):
                yield Move(at, min(at + width, last), step > 0, step < size, step < 2 * size - 2)
        start += size * part


def chain_moves(start: int, stop: int, *, rank: int, size: int, slice_: int) -> Iterator[Move]:
    """Yield the moves of one channel of a broadcast along the ring, from rank 0 to the last, in their order."""
    for at in range(start, stop, slice_):
        yield Move(at, min(at + slice_, stop), rank > 0, False, rank < size - 1)


def share(numel: int, channel: int, channels: int) -> tuple[int, int]:
    """Return the first element of a channel's share, and the one after its last."""
    width = -(-numel // channels)
    return min(channel * width, numel), min((channel + 1) * width, numel)
