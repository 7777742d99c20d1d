"""Momenta of which a part is sent in each step: SLAMB's memory of one rank, and the steps that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from compressors.base.compressor import Layout
from testbed.worker.methods.optimizers.lamb import LambRule, norm

# Parts of a tensor that take turns, each element one turn: which those are costs no message and no mask.

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


ALWAYS_BELOW = 9000
"""Tensors of fewer elements are sent whole in each step, and those of one dimension."""


@dataclass(frozen=True)
class _Part:
    """One parameter, with views of what is kept of it."""

    parameter: nn.Parameter
    momentum: Tensor
    variance: Tensor
    turns: Turns | None
    """None: sent whole."""
    group: int
    """Of the workload's optimizer."""

    def elements(self, turn: int) -> int:
        return self.parameter.numel() if self.turns is None else self.turns.elements(turn)


class SparseMomenta:
    """Moments of all parameters, side by side, and which of them have their turn.

    Freshness of a momentum is beta3^a, a steps after it was sent last; before the first step all are equal, as if they
    had just been sent.

    Args:
        parameters: in the order in which `gradients` holds theirs.
        gradients: flat; of this rank.
        groups: of the workload's optimizer.
        count: of turns.
        spread: what the step of a stale momentum is divided by: the root of the number of ranks.
        seed: the same on all ranks, as the order of parameters is.
        learns: else nothing is kept or updated, and gradients themselves have their turns: the bytes of a replay.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        gradients: Tensor,
        groups: Sequence[dict[str, Any]],
        rule: LambRule,
        *,
        count: int,
        beta3: float,
        spread: float,
        seed: int,
        learns: bool = True,
    ) -> None:
        self.rule, self.count, self.beta3, self.spread = rule, count, beta3, spread
        self._gradients, self._learns = gradients, learns
        self.momentum, self.variance = (torch.zeros_like(gradients) if learns else gradients for _ in range(2))
        generator = torch.Generator().manual_seed(seed)
        self._initial = [float(group.get("lr", 0.0)) for group in groups]  # a replay's groups have no rate
        group_of = {p: index for index, group in enumerate(groups) for p in group["params"]}
        sizes = [p.numel() for p in parameters]
        momenta, variances = self.momentum.split(sizes), self.variance.split(sizes)
        self._parts = []
        for p, momentum, variance in zip(parameters, momenta, variances, strict=True):
            whole = count == 1 or p.dim() < 2 or p.numel() < ALWAYS_BELOW
            turns = None if whole else Turns(p.numel(), count, generator)
            self._parts.append(_Part(p, momentum.view(p.shape), variance.view(p.shape), turns, group_of[p]))
        self._sent = torch.empty(max(self.elements(turn) for turn in range(count)))

    def elements(self, turn: int) -> int:
        """That are sent then."""
        return sum(part.elements(turn) for part in self._parts)

    def layout(self, turn: int, names: dict[nn.Parameter, str]) -> Layout:
        """Of what `take` returns."""
        shapes = tuple(
            tuple(part.parameter.shape) if part.turns is None else (part.elements(turn),) for part in self._parts
        )
        return Layout(shapes, turn, tuple(names[part.parameter] for part in self._parts))

    @torch.no_grad()
    def take(self, turn: int) -> Tensor:
        """Let all moments take a step by this rank's gradients; the momenta whose turn it is, to be averaged."""
        if self._learns:
            self.rule.add(self._gradients, self.momentum, self.variance)
        for part, piece in self._pieces(turn):
            if part.turns is None:
                piece.copy_(part.momentum.view(-1))
            else:
                part.turns.take(part.momentum.view(-1), turn, piece)
        return self._sent[: self.elements(turn)]

    @torch.no_grad()
    def apply(self, steps: int, groups: Sequence[dict[str, Any]]) -> None:
        """Take over the mean that `take`'s tensor holds now, and update all parameters.

        Args:
            steps: that moments have taken.
            groups: the optimizer's, of now.
        """
        if not self._learns:
            return
        turn = (steps - 1) % self.count
        freshness = [self.beta3 ** self._age(other, steps) for other in range(self.count)]
        for part, piece in self._pieces(turn):
            rate = self.rule.rate(groups[part.group], self._initial[part.group])
            if part.turns is None:
                part.momentum.view(-1).copy_(piece)
                self.rule.step(part.parameter, part.momentum, part.variance, steps=steps, rate=rate)
            else:
                part.turns.put(piece, turn, part.momentum.view(-1))
                self._step(part, part.turns, piece, freshness, steps, rate)

    def _age(self, turn: int, steps: int) -> int:
        """Steps since what has that turn was sent."""
        now = steps - 1
        return (now - turn) % self.count if now >= turn else steps

    def _pieces(self, turn: int) -> list[tuple[_Part, Tensor]]:
        sizes = [part.elements(turn) for part in self._parts]
        return list(zip(self._parts, self._sent[: sum(sizes)].split(sizes), strict=True))

    def _step(
        self, part: _Part, turns: Turns, scratch: Tensor, freshness: Sequence[float], steps: int, rate: float
    ) -> None:
        """Of a tensor of which some elements have their turn.

        Args:
            scratch: as large as those.
        """
        rule, turn = self.rule, (steps - 1) % self.count
        weight = part.parameter.view(-1)
        update = rule.direction(part.parameter, part.momentum, part.variance, steps).view(-1)
        norms = [_norms(flat, turns, turn, scratch) for flat in (weight, update)]
        sent, rest = (rule.ratio(*pair) for pair in zip(*norms, strict=True))
        factors = [
            -rate * (fresh + (1 - fresh) / self.spread) * (fresh * sent + (1 - fresh) * rest) for fresh in freshness
        ]
        turns.scale(update, torch.tensor(factors))
        weight.add_(update)


def _norms(flat: Tensor, turns: Turns, turn: int, scratch: Tensor) -> tuple[float, float]:
    """Of what has its turn, and of all else: by their squares' difference, which nothing of note is left of where the
    rest is zero."""
    turns.take(flat, turn, scratch)
    whole, part = norm(flat), norm(scratch)
    rest_square = whole**2 - part**2
    return part, rest_square**0.5 if rest_square > _NOTHING * whole**2 else 0.0


_NOTHING = 1e-5
"""Of a sum of squares: what rounding leaves in float32."""
