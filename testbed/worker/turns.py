"""Parts of a tensor that take turns, each element one turn: which those are costs no message and no mask."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 16
"""Elements that share a turn: as long as a cache line, so that a turn touches its own memory alone."""


class Turns:
    """Deals the blocks of a flat tensor out to turns, by chance, so that turns differ by one block at most.

    What a turn costs follows from its own size: its blocks are copied as rows of a matrix.

    Args:
        elements: of the tensor.
        count: of turns.
        generator: the same on all ranks.
    """

    def __init__(self, elements: int, count: int, generator: torch.Generator) -> None:
        self._full = elements // BLOCK
        self._rest = elements % BLOCK
        blocks = self._full + (self._rest > 0)
        self.turn_of = torch.empty(blocks, dtype=torch.int64)
        """Of each block; the last one may be short."""
        self._rows: list[Tensor] = []
        for turn, blocks_of_turn in enumerate(torch.randperm(blocks, generator=generator).tensor_split(count)):
            self.turn_of[blocks_of_turn] = turn
            self._rows.append(blocks_of_turn[blocks_of_turn < self._full].sort().values)

    def elements(self, turn: int) -> int:
        return BLOCK * len(self._rows[turn]) + (self._rest if self._has_short_block(turn) else 0)

    def take(self, flat: Tensor, turn: int, out: Tensor) -> None:
        """Copy what has its turn from `flat` to `out`, which has as many elements."""
        rows = self._rows[turn]
        end = BLOCK * len(rows)
        torch.index_select(self._blocks(flat), 0, rows, out=out[:end].view(-1, BLOCK))
        if self._has_short_block(turn):
            out[end:] = self._short_block(flat)

    def put(self, part: Tensor, turn: int, flat: Tensor) -> None:
        """Likewise back."""
        rows = self._rows[turn]
        end = BLOCK * len(rows)
        self._blocks(flat).index_copy_(0, rows, part[:end].view(-1, BLOCK))
        if self._has_short_block(turn):
            self._short_block(flat).copy_(part[end:])

    def scale(self, flat: Tensor, factors: Tensor) -> None:
        """Multiply each element by its turn's of `factors`."""
        each = factors[self.turn_of]
        self._blocks(flat).mul_(each[: self._full, None])
        self._short_block(flat).mul_(each[self._full :])

    def _has_short_block(self, turn: int) -> bool:
        return self._rest > 0 and int(self.turn_of[-1]) == turn

    def _blocks(self, flat: Tensor) -> Tensor:
        return flat[: self._full * BLOCK].view(-1, BLOCK)

    def _short_block(self, flat: Tensor) -> Tensor:
        """Empty where all are full."""
        return flat[self._full * BLOCK :]
