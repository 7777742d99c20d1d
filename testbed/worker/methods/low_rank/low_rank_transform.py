"""What transforms to low rank have in common: the switch itself, and the learning rate after it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from torch import nn

from testbed.core.costs.low_rank import LowRankPlan, WeightLayer, re_warm_up, standing
from testbed.core.errors import InputError
from testbed.core.record.events.training import ModelChange
from testbed.worker.interfaces.transform import Transform, TransformContext
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.methods.low_rank.factorization import factorise, weight_layers


class LowRankTransform(Transform):
    """Trains at full rank at first, then factorises once by singular value decomposition, every rank by itself.

    Args:
        rewarm_steps: over which the learning rate rises again after the switch.
        extra_norm: as of `low_rank.layers.low_rank`.
    """

    def __init__(self, *, rewarm_steps: int, extra_norm: bool = False) -> None:
        self.rewarm_steps, self.extra_norm = rewarm_steps, extra_norm
        self.layers: list[WeightLayer] = []
        """Of the model at full rank."""
        self.ranks: dict[str, int] | None = None
        """Of factorised layers; None before the switch."""
        self._switched_after = -1

    def bind(self, context: TransformContext) -> None:
        self._context = context
        self.layers = weight_layers(context.model)

    @property
    def adds_to_gradients(self) -> bool:
        return self.rewarm_steps > 0

    def looks_after(self, step: int) -> bool:
        # after the last step there is nothing left to gain
        return self.ranks is None and step + 1 < self._context.steps and self._is_due(step)

    def plan_after(self, model: nn.Module, step: int) -> LowRankPlan | None:
        return self._plan_after(model, step) if self.looks_after(step) else None

    def example(self, model: nn.Module) -> None:
        """
        Raises:
            InputError: no layer would be factorised.
        """
        plan = self._expected(weight_layers(model))
        if not plan.ranks:
            raise InputError(_nothing_to_do(plan.kept))
        factorise(model, plan.ranks, extra_norm=self.extra_norm)

    def switch(self, model: nn.Module, plan: LowRankPlan, step: int) -> ModelChange:
        before = parameters(model)
        found = factorise(model, plan.ranks, extra_norm=self.extra_norm)
        # equal weights have equal factors only where libraries and processors are equal too
        checksum = parameters_crc32(model)
        self._context.comm.require_equal(checksum, "the checksum of factorised parameters")
        self.ranks, self._switched_after = dict(plan.ranks), step
        return ModelChange(
            parameters_before=before, parameters=parameters(model), factorised=found, kept=dict(plan.kept)
        )

    def rate_factor(self, step: int) -> float:
        return 1.0 if self.ranks is None else re_warm_up(step - self._switched_after - 1, self.rewarm_steps)

    @abstractmethod
    def _is_due(self, step: int) -> bool:
        """As `looks_after`, of a model at full rank and not the last step."""

    @abstractmethod
    def _expected(self, layers: Sequence[WeightLayer]) -> LowRankPlan:
        """Before anything is known but the layers."""

    @abstractmethod
    def _plan_after(self, model: nn.Module, step: int) -> LowRankPlan | None:
        """As `plan_after`, of a model at full rank."""

    def _require_some(self, keep_first: int) -> None:
        """
        Raises:
            InputError: no layer of the model may be factorised.
        """
        kept = standing(self.layers, keep_first)
        if len(kept) == len(self.layers):
            raise InputError(_nothing_to_do(kept))


def _nothing_to_do(kept: Mapping[str, str]) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in kept.items()) or "it has no such layers"
    return f"transform: no linear map or convolution of the model may be factorised: {reasons}"


def parameters(model: nn.Module) -> int:
    """That learn."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
