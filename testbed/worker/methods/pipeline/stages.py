"""What a rank has of the model: its stages, each a run of pieces, whole or one shard of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.parallelism.plan import Plan
from testbed.worker.methods.pipeline.tensor_parallel import Part, ShardedLayers, Shards
from testbed.worker.model.activation_cache import ActivationCache
from testbed.worker.model.chain import Chain
from testbed.worker.model.pieces import Piece, Sharing


@dataclass(frozen=True)
class Stage:
    number: int
    module: nn.Sequential
    alike: tuple[nn.Parameter, ...]
    """Trained, in the model's order; ranks that share the stage have the same ones."""
    parts: tuple[Part, ...]
    """Of what is shared out, trained or not."""
    learns: bool
    """Whether it or one before it has something to train: gradients come to it."""
    passes_gradients: bool
    """Whether one before it has: its input's gradients are asked for."""

    @property
    def shared(self) -> tuple[nn.Parameter, ...]:
        """Trained; each shard has its own."""
        return tuple(part.part for part in self.parts if part.part.requires_grad)


def stages_of(plan: Plan, rank: int, pieces: Sequence[Piece], shards: Shards | None) -> list[Stage]:
    """Those of `rank`, in order.

    Args:
        shards: with whom layers are shared; None where plan.tp is 1.
    """
    trains = [any(p.requires_grad for p in piece.module.parameters()) for piece in pieces]
    made = []
    for number in plan.stages_of(rank):
        layers = plan.layers_of_stage(number, len(pieces))
        sharing = None if shards is None else ShardedLayers(plan.tp, plan.coordinates(rank)[2], shards)
        modules = [_of_shard(pieces[layer], sharing) for layer in layers]
        parts = () if sharing is None else tuple(sharing.parts)
        shared_out = {part.split.whole for part in parts}
        wholes = (p for layer in layers for p in pieces[layer].module.parameters())
        alike = tuple(p for p in wholes if p.requires_grad and p not in shared_out)
        learns, before = any(trains[: layers.stop]), any(trains[: layers.start])
        made.append(Stage(number, nn.Sequential(*modules), alike, parts, learns, before))
    return made


@torch.no_grad()
def boundary_shapes(plan: Plan, pieces: Sequence[Piece], inputs: Tensor) -> list[tuple[int, ...]]:
    """Of what each stage but the last passes on, of one micro-batch.

    Args:
        inputs: one micro-batch's.
    """
    shapes: list[tuple[int, ...]] = []
    flowing = inputs
    for number in range(plan.stages - 1):
        for layer in plan.layers_of_stage(number, len(pieces)):
            flowing = pieces[layer].module(flowing)
        if flowing.dtype != torch.float32:
            last = pieces[plan.cuts[number + 1] - 1].name
            raise TypeError(f"what {last} passes on is {flowing.dtype}, and stages pass float32 alone")
        shapes.append(tuple(flowing.shape))
    return shapes


def _of_shard(piece: Piece, sharing: Sharing | None) -> nn.Module:
    shared: Callable[[Sharing], nn.Module] | None = piece.shared
    return piece.module if sharing is None or shared is None else shared(sharing)


# The frozen pieces that a first stage begins with: what they have made of samples before, they need not make again.


class FrozenPart:
    """
    Args:
        pieces: the first ones of the first stage.
    """

    def __init__(self, pieces: list[nn.Module], cache: ActivationCache) -> None:
        self._pieces, self._cache = pieces, cache

    @classmethod
    def of(cls, model: nn.Module, plan: Plan) -> FrozenPart | None:
        """None: nothing is frozen, or nothing is to be kept."""
        if not isinstance(model, Chain) or model.cache is None or not model.frozen:
            return None
        here = model.prefix()[: plan.cuts[1] if plan.stages > 1 else None]
        return cls(here, model.cache)

    def spared(self, batch: Any) -> list[float]:
        """Of each piece, what share of the samples it will not see."""
        depths = self._cache.depths(batch.numbers)
        return [sum(depth > place for depth in depths) / len(depths) for place in range(len(self._pieces))]

    def through(self, stage: nn.Sequential, batch: Any, inputs: Tensor) -> Tensor:
        """What the first stage makes."""
        hidden = self._cache.through(self._pieces, batch.numbers, inputs)
        made: Tensor = stage[len(self._pieces) :](hidden)
        return made
