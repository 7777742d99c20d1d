"""Blocks of a replayed model as pieces of a chain: their bytes at each boundary, without arithmetic.

What passes from one to the next are views of the gradient pool, of the right size and without meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.models.model import Layer
from testbed.worker.data.gradient_pool import DENSE, gradient_pool
from testbed.worker.data.replayed_blocks import COLUMNS, ROWS, Block, part
from testbed.worker.model.pieces import Piece, Sharing

_FORWARD_BAND, _BACKWARD_BAND = DENSE[4], DENSE[1]


class Emitting(nn.Module):
    """Base of layers that have gradients without arithmetic."""

    layer: Layer

    def forward(self, chain: Tensor, moment: Any) -> Tensor:
        """Return the zero that flows through the graph."""
        return Emit.apply(chain, partial(self.gradients, moment), *self.parameters())

    def gradients(self, moment: Any) -> list[Tensor]:
        """Return the gradient of each of its parameters, views that nobody may write to and that it keeps.

        They are kept since torch would make a gradient that nobody else holds a parameter's `grad` itself where there
        is none yet, and whoever changes it there would write to the pool. Thus it makes a copy.
        """
        raise NotImplementedError


class Emit(torch.autograd.Function):
    """Node of a layer in the graph; a zero flows through it, which keeps the order."""

    @staticmethod
    def forward(ctx: Any, chain: Tensor, gradients: Callable[[], list[Tensor]], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return chain.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return (*upstream, None, *ctx.gradients())


class ReplayedPiece(nn.Module):
    """Layers of a replay, called one after another on a tensor that stands for activations.

    Args:
        layers: the model's own, or shards of them.
        values: number of values of a sample that it passes on; 0: a zero.
        moment: the batch that its gradients are of, as long as nobody names another.
    """

    def __init__(self, layers: Sequence[nn.Module], values: int, moment: Any) -> None:
        super().__init__()
        self.layers, self.values = nn.ModuleList(layers), values
        self.moment = moment
        """The batch that gradients of its next call are of."""

    def forward(self, given: Tensor) -> Tensor:
        chain = _Enter.apply(given)
        for layer in self.layers:
            chain = layer(chain, given.shape[0] if isinstance(layer, _Summed) else self.moment)
        return _Leave.apply(chain, (given.shape[0], self.values)) if self.values else chain


def replayed_pieces(blocks: Sequence[Block], layers: Sequence[Emitting], scale: float, moment: Any) -> list[Piece]:
    """Return the chain of a replayed model.

    Args:
        layers: its modules, an entry for each layer of the table.
        scale: factor by which what is sent is smaller.
        moment: the batch that gradients are of, as long as nobody names another.
    """
    pieces = []
    for block in blocks:
        own = [layers[number] for number in block.layers]
        values = math.ceil(block.values / scale)
        pieces.append(
            Piece(
                block.name,
                ReplayedPiece(own, values, moment),
                is_block=block.is_block,
                shared=partial(_shard, own, values, moment) if block.heads else None,
                divisible={"attention heads": block.heads} if block.heads else {},
                kept=math.ceil(block.kept / scale),
                tied=None if block.tied is None else next(layers[block.tied].parameters()),
            )
        )
    return pieces


def _shard(layers: Sequence[Emitting], values: int, moment: Any, sharing: Sharing) -> nn.Module:
    """Return one shard of a block: outputs of a linear map are divided, inputs of the one that takes them, and what
    enters and leaves is summed over shards; all else each shard has whole."""
    made = list[nn.Module]()
    inside = False
    for layer in layers:
        name = part(layer.layer)
        if name in COLUMNS and not inside:
            made.append(_Summed(sharing, values, in_backward=True))
            inside = True
        # of rows the bias is added once, after the sum
        divided = 2 if name in COLUMNS else 1 if name in ROWS else 0
        made.append(_Shard(layer, sharing, divided) if divided else layer)
        if name in ROWS:
            made.append(_Summed(sharing, values, in_backward=False))
            inside = False
    return ReplayedPiece(made, values, moment)


class _Shard(Emitting):
    """A layer of whose first `divided` tensors a shard has a part, as a run of elements."""

    def __init__(self, whole: Emitting, sharing: Sharing, divided: int) -> None:
        super().__init__()
        self._of_whole, self._parts, self._lent = whole.gradients, list[slice](), list[Tensor]()
        for number, parameter in enumerate(whole.parameters()):
            count = parameter.numel()
            if number < divided:
                count = math.ceil(count / sharing.degree)
                begin = min(sharing.shard * count, parameter.numel() - count)
                self._parts.append(slice(begin, begin + count))
                flat = parameter.detach().view(-1)[:count]
                parameter = sharing.share(parameter, nn.Parameter(flat, requires_grad=parameter.requires_grad))
            self.register_parameter(f"tensor{number}", parameter)

    def gradients(self, moment: Any) -> list[Tensor]:
        found = self._of_whole(moment)
        mine = [whole.view(-1)[part] for whole, part in zip(found, self._parts, strict=False)]
        self._lent = [*mine, *found[len(mine) :]]
        return self._lent


class _Summed(nn.Module):
    """Activations of all shards summed, in forward or in backward; `values` of each sample."""

    def __init__(self, sharing: Sharing, values: int, *, in_backward: bool) -> None:
        super().__init__()
        self._sharing, self._values, self._in_backward = sharing, values, in_backward

    def forward(self, chain: Tensor, samples: int) -> Tensor:
        shape = samples, self._values
        return _Sum.apply(chain, partial(self._sharing.sum, _activations(shape, _FORWARD_BAND)), self._in_backward)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, chain: Tensor, add: Callable[[], Tensor], in_backward: bool) -> Tensor:
        ctx.add = add if in_backward else None
        if not in_backward:
            add()
        return chain.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        if ctx.add is not None:
            ctx.add()
        return (*upstream, None, None)


class _Enter(torch.autograd.Function):
    """From activations to the zero that flows through layers; their gradient is of their size."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        ctx.shape = given.shape
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return _activations(ctx.shape, _BACKWARD_BAND)


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, chain: Tensor, shape: tuple[int, int]) -> Tensor:
        return _activations(shape, _FORWARD_BAND)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return torch.zeros(()), None


def _activations(shape: Sequence[int], band: int) -> Tensor:
    """Return a view of the pool. Whoever is to write to it has to copy it."""
    pool = gradient_pool()
    pool.reserve(math.prod(shape))
    return pool.gradient(band, 0, tuple(shape))
