from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import Context, FeedbackMode, Traits
from compressors.parts.optimizers import plain_sgd
from compressors.parts.votes import MajorityVote, decode_votes, encode_votes
from testbed.core.parameters import LearningRate


class SignSGD(MajorityVote):
    """Step by the majority sign of gradients.

    Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018,
    arXiv:1802.04434, Algorithm 3; Bernstein, Zhao, Azizzadenesheli, Anandkumar, "signSGD with Majority Vote is
    Communication Efficient And Fault Tolerant", ICLR 2019, arXiv:1810.05291.
    Differs from the papers: no server counts the votes, each rank counts those of one part; zeros and ties count as
    above and below zero by turns, from one position to the next and from one step to the next.

    The output is 1 or -1, or zeros where all ranks have zeros alone: not the mean, and without magnitude, so error
    feedback is refused. The optimizer becomes plain SGD. NaN and infinity are refused by name.
    Wire: 1 if there are votes, else 0, uint8; then signs (ceil(n / 8),) packed; 1 + ceil(n / 8) bytes, gathered among
    two ranks, in two shots among more.
    Keeps no state.

    Args:
        learning_rate: Step size; null: the workload's, mostly far too large. That is meant for gradients.

    Raises:
        ValueError: learning_rate is not in (0, 10).
        NonFiniteError: a gradient holds NaN or infinity.
    """

    traits = Traits(
        own_rounds=True, max_rounds=2, averages=False, feedback="harmful", owns="optimizer", carries_non_finite=False
    )

    def __init__(self, *, learning_rate: LearningRate | None = 0.0003, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.learning_rate = learning_rate

    def ballot(self, tensor: Tensor, context: Context) -> Tensor:
        return tensor

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return encode_votes(tensor, context.step, type(self).__name__)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        decode_votes(payload, out, type(self).__name__, add=add, scale=scale)

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return plain_sgd(optimizer, self.learning_rate)
