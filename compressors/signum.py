from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Context, FeedbackMode, Layout, Traits
from compressors.base.memory import Memory, moved
from compressors.parts.optimizers import plain_sgd
from compressors.parts.votes import MajorityVote
from testbed.core.parameters import Fraction, LearningRate


class Signum(MajorityVote):
    """Step by the majority sign of momenta.

    Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018,
    arXiv:1802.04434, Algorithm 2; Bernstein, Zhao, Azizzadenesheli, Anandkumar, "signSGD with Majority Vote is
    Communication Efficient And Fault Tolerant", ICLR 2019, arXiv:1810.05291, Algorithm 1.
    Differs from the papers: no server counts the votes, each rank counts those of one part; zeros and ties count as
    above and below zero by turns, from one position to the next and from one step to the next.

    Each rank votes with u = m u + (1 - m) g of its own gradients. The output is 1 or -1, or zeros where all ranks have
    zeros alone: not the mean, and without magnitude, so error feedback is refused. The optimizer becomes plain SGD.
    Not point to point. NaN and infinity are refused by name.
    Wire: 1 if there are votes, else 0, uint8; then signs (ceil(n / 8),) packed; 1 + ceil(n / 8) bytes, gathered among
    two ranks, in two shots among more.
    Keeps the momentum of this rank, 4 bytes a parameter. In other buckets momenta follow their parameters.

    Args:
        momentum: Momentum; null: the SGD's of the workload.
        learning_rate: Step size; null: the workload's, mostly far too large. That is meant for gradients.

    Raises:
        ValueError: momentum is not in [0, 1), or learning_rate not in (0, 10).
        NonFiniteError: a momentum holds NaN or infinity.
    """

    traits = Traits(
        own_rounds=True,
        max_rounds=2,
        point_to_point=False,
        averages=False,
        feedback="harmful",
        owns="optimizer",
        carries_non_finite=False,
    )

    def __init__(
        self,
        *,
        momentum: Fraction | None = 0.9,
        learning_rate: LearningRate | None = 0.0005,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.momentum, self.learning_rate = momentum, learning_rate
        self._momenta = Memory()

    def ballot(self, tensor: Tensor, context: Context) -> Tensor:
        if self.momentum is None:
            raise ValueError("momentum=null: Signum was given no optimizer to take it from")
        return self._momenta.of(tensor, context).lerp_(tensor.float(), 1 - self.momentum)

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        if self.momentum is None:
            found = {group.get("momentum") for group in optimizer.param_groups}
            momentum = found.pop()
            if found or momentum is None:
                kind = type(optimizer).__name__
                raise ValueError(f"momentum=null: Signum takes the one momentum of SGD, found {kind} without one")
            self.momentum = float(momentum)
        return plain_sgd(optimizer, self.learning_rate)

    def state_dict(self) -> dict[str, Any]:
        return {"momenta": self._momenta.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._momenta.load_state_dict(state.get("momenta", {}))

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        return {"momenta": moved(state.get("momenta", {}), old, new)}
