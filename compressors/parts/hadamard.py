"""A random rotation that is quick: random signs, then a Hadamard transform, in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK
from compressors.base.streams import Stream
from testbed.core.kinds import PowerOfTwo

_Stage = tuple[Tensor, Tensor, Tensor, Tensor]

RotationWidth = Annotated[int, PowerOfTwo(8, CHUNK)]


@dataclass(frozen=True)
class Group:
    """Some blocks that lie entangled in one range of a tensor."""

    entries: slice
    """Entries of the tensor; the last group may be short, and is filled up with zeros."""
    blocks: slice
    codes: slice
    """Places among all rotated entries, with those that fill up."""
    shape: tuple[int, int, int]
    """Shape (sets, width, lanes) of the rotated entries: a block is one set's column."""


class Rotation:
    """Multiplies blocks of `width` entries by H D / sqrt(width): D random signs, H the Hadamard matrix.

    Entries that follow each other belong to different blocks: in a group of CHUNK entries, block i has the entries i,
    i + lanes, i + 2 lanes, ... So every stage of the transform adds and subtracts stretches of memory. It does only
    that and multiplications by one number, so its bits are the same on every kind of device. All groups share D.
    The last group has as many blocks as it needs; a tensor of less than `width` entries is one block, filled up to a
    power of two.

    Args:
        width: a power of two, at most CHUNK.
        turns: how often, each time with other signs. Once leaves few large entries in patterns; twice does not.
    """

    def __init__(self, numel: int, width: int, stream: Stream, device: torch.device, *, turns: int = 1) -> None:
        self.numel = numel
        self.width, self.blocks = self.sizes(numel, width)
        self.size = self.blocks * self.width
        self._lanes = CHUNK // self.width
        self._on_processor = device.type == "cpu"
        lanes = min(self._lanes, self.blocks)
        signs = stream.signs(0, turns * self.width * lanes, device).mul_(1 / math.sqrt(self.width))
        self._signs = signs.view(turns, self.width, lanes)
        self._scratch: dict[tuple[int, int, int], tuple[Tensor, Tensor, list[_Stage]]] = {}

    @staticmethod
    def sizes(numel: int, width: int) -> tuple[int, int]:
        """Return (width, blocks) of a tensor of `numel` entries."""
        width = min(width, 1 << max(numel - 1, 0).bit_length())
        return width, -(-numel // width)

    def groups(self) -> Iterator[Group]:
        """In order. One set at a time on a processor, which keeps it in cache; on an accelerator all full ones."""
        whole = self.blocks // self._lanes
        sets = [1] * whole if self._on_processor else [whole] * (whole > 0)
        shapes = [(count, self.width, self._lanes) for count in sets]
        if rest := self.blocks - whole * self._lanes:
            shapes.append((1, self.width, rest))
        block = 0
        for shape in shapes:
            stop = block + shape[0] * shape[2]
            start_entry, stop_entry = block * self.width, stop * self.width
            entries = slice(start_entry, min(stop_entry, self.numel))
            yield Group(entries, slice(block, stop), slice(start_entry, stop_entry), shape)
            block = stop

    def forward(self, entries: Tensor, group: Group) -> Tensor:
        """Rotated, of the group's shape; overwritten by the next call.

        Args:
            entries: those of the group, any float, any stride.
        """
        first, start, stages = self._buffers(group.shape)
        source = first.view(-1)
        source[: len(entries)] = entries
        source[len(entries) :] = 0.0
        for signs in self._signs[:, :, : group.shape[2]]:
            torch.mul(first, signs, out=start)
            _transform(stages)
        return first

    def inverse(self, rotated: Tensor, group: Group, factors: Tensor) -> Tensor:
        """The entries of the group, each block times its own factor, float32; overwritten by the next call.

        The factor comes last: small integers are rotated without any rounding.
        """
        first, start, stages = self._buffers(group.shape)
        if rotated is not first:
            first.copy_(rotated)
        for signs in self._signs[:, :, : group.shape[2]].flip(0):
            if start is not first:
                start.copy_(first)
            _transform(stages)
            first.mul_(signs)
        first.mul_(factors.view(group.shape[0], 1, group.shape[2]))
        return first.view(-1)[: group.entries.stop - group.entries.start]

    def buffer(self, group: Group) -> Tensor:
        """Return the tensor that `inverse` need not copy when it is given there."""
        return self._buffers(group.shape)[0]

    def _buffers(self, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor, list[_Stage]]:
        """(where values are and end, where the first stage reads, stages)."""
        if shape not in self._scratch:
            first, second = (torch.empty(shape, device=self._signs.device) for _ in range(2))
            count = self.width.bit_length() - 1
            start, other = (second, first) if count % 2 else (first, second)
            self._scratch[shape] = first, start, _stages(start, other)
        return self._scratch[shape]


def _stages(source: Tensor, target: Tensor) -> list[_Stage]:
    """For each stage, the two halves that are read, and where their sum and difference go."""
    _, width, lanes = source.shape
    stages, half = [], 1
    while half < width:
        read, written = (buffer.view(-1, 2, half * lanes) for buffer in (source, target))
        stages.append((read[:, 0], read[:, 1], written[:, 0], written[:, 1]))
        source, target, half = target, source, 2 * half
    return stages


def _transform(stages: list[_Stage]) -> None:
    for low, high, total, difference in stages:
        torch.add(low, high, out=total)
        torch.sub(low, high, out=difference)
