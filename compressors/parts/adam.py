"""Base of compressors that are Adam themselves, and leave its direction instead of a mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.memory import Memory, moved
from compressors.parts.block_signs import BlockSize
from compressors.parts.optimizers import plain_sgd
from compressors.parts.sign_mean import SignMean, moved_mean
from testbed.core.parameters import Fraction, LearningRate, Share


class CompressedAdam(Compressor):
    """Keeps momenta m and variances v of each bucket, and steps by m / (sqrt(v) + eps), each corrected for its bias.

    Once momenta go as signs, the root of v is at least `floor` times its mean over the tensor: else a parameter with
    hardly any gradients so far would be thrown far away by what a block's one magnitude gives it.
    """

    traits = Traits(
        own_rounds=True,
        max_rounds=2,
        point_to_point=False,
        averages=False,
        feedback="builtin",
        owns="optimizer",
    )

    def __init__(
        self,
        *,
        learning_rate: LearningRate | None,
        beta1: Fraction,
        beta2: Fraction,
        eps: Share,
        floor: Share,
        block_size: BlockSize,
        feedback: FeedbackMode,
    ) -> None:
        super().__init__(feedback=feedback)
        self.learning_rate, self.beta1, self.beta2, self.eps, self.floor = learning_rate, beta1, beta2, eps, floor
        self.momenta, self.variances = Memory(), Memory()
        self._means: dict[str, list[float]] = {}
        self.mean = SignMean(block_size, type(self).__name__)

    def add_mean(self, mean: Tensor, context: Context) -> None:
        """Move both moments one step by the mean gradient, as torch's Adam does."""
        self.momenta.of(mean, context).lerp_(mean, 1 - self.beta1)
        self.variances.of(mean, context).mul_(self.beta2).addcmul_(mean, mean, value=1 - self.beta2)
        self._means.pop(context.state_key, None)

    def direct(self, out: Tensor, context: Context, moves: int, updates: int, *, floored: bool) -> None:
        """Leave the direction in `out`.

        Args:
            moves: Steps that momentum has taken.
            updates: Steps that the variance has taken.
            floored: True if momenta have gone as signs.
        """
        momentum, variance = self.momenta.of(out, context), self.variances.of(out, context)
        momentum_scale, root_scale = 1 / (1 - self.beta1**moves), (1 - self.beta2**updates) ** -0.5
        numels = context.layout.numels if floored else [out.numel()]
        means = self._mean_roots(variance, context) if floored else [0.0]
        parts = zip(out.split(numels), momentum.split(numels), variance.split(numels), means, strict=True)
        for direction, m, v, mean in parts:
            for piece in chunks(v):
                root = v[piece].sqrt().mul_(root_scale)
                if floored:
                    root.clamp_(min=self.floor * mean * root_scale)
                direction[piece] = torch.div(m[piece], root.add_(self.eps), out=root).mul_(momentum_scale)

    def _mean_roots(self, variance: Tensor, context: Context) -> list[float]:
        """Return the mean root of each tensor's variance, kept until it changes."""
        means = self._means.get(context.state_key)
        if means is None:
            parts = variance.split(context.layout.numels)
            means = [float(part.sqrt().mean()) if part.numel() else 0.0 for part in parts]
            self._means[context.state_key] = means
        return means

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return plain_sgd(optimizer, self.learning_rate)

    def state_dict(self) -> dict[str, Any]:
        return {name: memory.state_dict() for name, memory in self._memories()} | {"mean": self.mean.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, memory in self._memories():
            memory.load_state_dict(state.get(name, {}))
        self.mean.load_state_dict(state.get("mean", {}))
        self._means = {}

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        result: dict[str, Any] = {"mean": moved_mean(state.get("mean", {}), old, new)}
        return result | {name: moved(state.get(name, {}), old, new) for name, _ in self._memories()}

    def _memories(self) -> Iterator[tuple[str, Memory]]:
        yield "momenta", self.momenta
        yield "variances", self.variances
