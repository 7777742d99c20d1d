from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from testbed.core.costs.low_rank import LowRankPlan, WeightLayer, make_plan, ratio_rank
from testbed.core.parameters import Count, CountOrZero, Flag, Fraction, Share
from testbed.worker.interfaces.transform import TransformContext
from testbed.worker.methods.low_rank.low_rank_transform import LowRankTransform


class Pufferfish(LowRankTransform):
    """Train at full rank for a while, then all but some layers at one fixed part of their rank.

    Wang et al., "Pufferfish: Communication-efficient Models At No Extra Cost", MLSys 2021, arXiv:2103.03936. In the
    authors' public code: a quarter of the rank; 80 of 300 epochs at full rank on CIFAR-10, 10 of 40 for an LSTM; with
    large batches 5 epochs over which the learning rate rises again; and an extra normalisation between the factors of
    convolutions. Layers that stay full are listed there for each model: the first three convolutions of ResNet-18,
    the first nine of VGG-19, always the last layer and shortcuts. Differs from it: layers whose factors would not be
    smaller stay full, and so do all convolutions of one place.

    Ranks follow from parameters and the plan alone, so that workers need not exchange anything.

    Args:
        ratio: Rank of factors / each layer's full rank. It is rounded down.
        keep_first: First linear maps and convolutions that stay full.
        warm_up_share: Share of steps at full rank.
        warm_up_steps: Steps at full rank; null: by `warm_up_share`.
        rewarm_steps: Steps over which the learning rate rises after the switch.
        compress_after: Compress gradients after the switch too. Powerfish is compressor=powersgd with this false.
        extra_norm: Batch normalisation between a convolution's factors. Its running means are of a rank's own samples
            and are not averaged: evaluation has those of rank 0.

    Raises:
        ValueError: a parameter is out of its range.
    """

    def __init__(
        self,
        *,
        ratio: Share = 0.25,
        keep_first: CountOrZero = 1,
        warm_up_share: Fraction = 0.25,
        warm_up_steps: Count | None = None,
        rewarm_steps: CountOrZero = 0,
        compress_after: Flag = True,
        extra_norm: Flag = False,
    ) -> None:
        super().__init__(rewarm_steps=rewarm_steps, extra_norm=extra_norm)
        self.ratio, self.keep_first, self.compresses_after = ratio, keep_first, compress_after
        self.warm_up_share, self.warm_up_steps = warm_up_share, warm_up_steps

    def validate(self, steps: int) -> Iterator[str]:
        if self.full_rank_steps(steps) >= steps:
            given = (
                f"warm_up_steps={self.warm_up_steps}" if self.warm_up_steps else f"warm_up_share={self.warm_up_share}"
            )
            yield f"{given}: leaves none of the run's {steps} steps to factorised layers"

    def full_rank_steps(self, steps: int) -> int:
        """Return the number of steps before the switch, at least one, in a run of `steps`."""
        return max(1, round(self.warm_up_share * steps)) if self.warm_up_steps is None else self.warm_up_steps

    def bind(self, context: TransformContext) -> None:
        super().bind(context)
        self._require_some(self.keep_first)

    def _is_due(self, step: int) -> bool:
        return step + 1 == self.full_rank_steps(self._context.steps)

    def _expected(self, layers: Sequence[WeightLayer]) -> LowRankPlan:
        return make_plan(layers, self.keep_first, lambda layer: ratio_rank(layer, self.ratio))

    def _plan_after(self, model: nn.Module, step: int) -> LowRankPlan:
        return self._expected(self.layers)
