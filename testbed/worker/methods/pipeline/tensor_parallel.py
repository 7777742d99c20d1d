"""Layers shared out among ranks: columns of one linear layer, rows of the next, one sum in forward and one in backward.

Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism",
arXiv:1909.08053, section 3. Differs from the paper: embeddings, head and norms are not shared out, and every shard
computes all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from testbed.worker.communication.collectives import two_shot
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.transport import Subset
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.model.pieces import Sharing


@dataclass(frozen=True)
class Split:
    """How shards divide a parameter."""

    whole: nn.Parameter
    """The model's; nobody trains it."""
    dim: int
    """That is divided."""
    runs: int
    """Of equal length, along that dimension; each shard has the same part of every one."""
    degree: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of each shard's part."""
        return tuple(n // self.degree if dim == self.dim else n for dim, n in enumerate(self.whole.shape))

    def index(self, shard: int) -> Tensor:
        """Which entries of `dim` a shard has, int64."""
        run = self.whole.shape[self.dim] // self.runs
        part = run // self.degree
        return (run * torch.arange(self.runs)[:, None] + torch.arange(shard * part, (shard + 1) * part)).flatten()

    def taken(self, shard: int) -> Tensor:
        """A copy of that shard's part."""
        return self.whole.detach().index_select(self.dim, self.index(shard))

    @torch.no_grad()
    def put(self, shard: int, values: Tensor) -> None:
        """Overwrite that shard's part of the whole."""
        self.whole.index_copy_(self.dim, self.index(shard), values.view(self.shape))


@dataclass(frozen=True)
class Part:
    """A shard's part of a parameter, which it trains in place of the whole."""

    split: Split
    part: nn.Parameter


class Shards:
    """The ranks that share layers; all of them compute the same in the same order."""

    def __init__(self, comm: Communicator, clock: PhaseClock, members: Sequence[int], channel: int) -> None:
        self._comm, self._clock = comm, clock
        self._peers = Subset(comm.peers(channel), members)

    def sum(self, tensor: Tensor) -> Tensor:
        """Over all of them, the same bits on each."""
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._clock.mark()
        end = self._comm.stopwatch.start()
        try:
            with self._clock.phase(WAITING), torch.no_grad():
                self._comm.host.starting(lambda: two_shot.all_reduce(self._peers, total))()
        except RuntimeError as error:
            raise self._comm.error(f"sum of {total.nbytes} bytes over shards", error) from error
        finally:
            end()
        return total


class ShardedLayers(Sharing):
    """Makes one shard's layers, and keeps which parts of which parameters they have."""

    def __init__(self, degree: int, shard: int, shards: Shards) -> None:
        self.degree, self.shard, self._shards = degree, shard, shards
        self.parts: list[Part] = []

    def columns(self, layer: nn.Linear, runs: int = 1) -> nn.Module:
        """This shard's outputs of `layer`.

        Args:
            runs: what outputs consist of, each of which is divided, as queries, keys and values.
        """
        bias = None if layer.bias is None else self._part(layer.bias, 0, runs)
        return _Columns(self._part(layer.weight, 0, runs), bias, self._shards)

    def rows(self, layer: nn.Linear) -> nn.Module:
        """All outputs of `layer` from this shard's inputs."""
        return _Rows(self._part(layer.weight, 1, 1), layer.bias, self._shards)

    def share(self, whole: nn.Parameter, part: nn.Parameter) -> nn.Parameter:
        self.parts.append(Part(Split(whole, 0, 1, self.degree), part))
        return part

    def sum(self, tensor: Tensor) -> Tensor:
        return self._shards.sum(tensor)

    def _part(self, whole: Tensor, dim: int, runs: int) -> nn.Parameter:
        assert isinstance(whole, nn.Parameter)  # whatever torch says of a layer's attributes
        split = Split(whole, dim, runs, self.degree)
        part = nn.Parameter(split.taken(self.shard), requires_grad=whole.requires_grad)
        self.parts.append(Part(split, part))
        return part


class _Columns(nn.Module):
    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None, shards: Shards) -> None:
        super().__init__()
        self.weight, self.bias, self._shards = weight, bias, shards

    def forward(self, entering: Tensor) -> Tensor:
        return nn.functional.linear(_Enter.apply(entering, self._shards), self.weight, self.bias)


class _Rows(nn.Module):
    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None, shards: Shards) -> None:
        super().__init__()
        self.weight, self.bias, self._shards = weight, bias, shards

    def forward(self, inside: Tensor) -> Tensor:
        whole: Tensor = _Leave.apply(nn.functional.linear(inside, self.weight), self._shards)
        return whole if self.bias is None else whole + self.bias


class _Enter(torch.autograd.Function):
    """The paper's f: all shards take the same, and its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.shards.sum(gradients[0]), None


class _Leave(torch.autograd.Function):
    """The paper's g: the sum of what shards have, whose gradient is that of each."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, shards: Shards) -> Tensor:
        return shards.sum(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None
