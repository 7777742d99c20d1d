"""The frozen pieces that a first stage begins with: what they have made of samples before, they need not make again."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from testbed.core.parallel.plan import Plan
from testbed.worker.activation_cache import ActivationCache
from testbed.worker.chain import Chain


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
