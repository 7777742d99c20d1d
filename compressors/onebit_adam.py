from __future__ import annotations

from torch import Tensor

from compressors.base.compressor import Context, Exchange, FeedbackMode, Layout, Rounds, Route
from compressors.parts.adam import CompressedAdam
from compressors.parts.block_signs import BlockSize
from compressors.parts.dense import dense_copy, dense_sent_bytes
from testbed.core.parameters import Count, Fraction, LearningRate, Share


class OneBitAdam(CompressedAdam):
    """Run Adam, then freeze its variance and send momentum signs.

    Tang, Gan, Awan, Rajbhandari, Li, Lian, Liu, Zhang, He, "1-bit Adam: Communication Efficient Large-Scale Training
    with Adam's Convergence Speed", ICML 2021, arXiv:2102.02888, Algorithm 1. With m the momentum all ranks share: each
    rank sends C(b1 m + (1 - b1) g + r), C being sign times mean magnitude and r what C lost before; the mean of these
    goes out as C(mean + q), with q what that lost before, and is the new m.
    Differs from the paper: values share a magnitude by blocks; biases are corrected, that of v as it was when frozen;
    the root of a frozen v has a floor; weight decay, of the workload's optimizer, is decoupled; no server averages,
    each rank does so for one part.

    The output is Adam's direction m / (sqrt(v) + eps), not a mean; the optimizer becomes plain SGD. Residuals are
    kept here, so error feedback is refused. Not point to point. NaN and infinity show.
    Wire: in the warm-up gradients, (n,) float32, summed. Then signs and scales of blocks, 4 ceil(n / block_size) +
    ceil(n / 8) bytes, gathered among two ranks, in two shots among more. Scales may differ in their last bits between
    kinds of device.
    Keeps m, v and residuals, 12 bytes a parameter, and 4 for those of the part it averages. In other buckets all follow
    their parameters.

    Args:
        warm_up_steps: Uncompressed Adam steps at the start; the paper: 15 to 25 % of all. They last until v is stable.
            In a run of 80 steps they send 27 % of the uncompressed bytes, most of the total.
        learning_rate: Adam's learning rate; null: the workload's.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        eps: Term added to the denominator.
        floor: Lower bound of sqrt(v), relative to its tensor's mean. It holds once v is frozen.
        block_size: Values that share a magnitude.

    Raises:
        ValueError: a parameter is out of its range.
    """

    def __init__(
        self,
        *,
        warm_up_steps: Count = 20,
        learning_rate: LearningRate | None = 0.001,
        beta1: Fraction = 0.9,
        beta2: Fraction = 0.999,
        eps: Share = 1e-8,
        floor: Share = 0.1,
        block_size: BlockSize = 1024,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            floor=floor,
            block_size=block_size,
            feedback=feedback,
        )
        self.warm_up_steps = warm_up_steps

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 4 * layout.numel if context.step < self.warm_up_steps else self.mean.size_bytes(layout.numel)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        if step < self.warm_up_steps:
            return dense_sent_bytes(layout, world_size)
        return self.mean.sent_bytes(layout, world_size)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        moves = context.step + 1
        if context.step < self.warm_up_steps:
            (total,) = yield Exchange(kind="all_reduce", data=[dense_copy(tensor)])
            self.add_mean(total.mul_(1 / context.world_size), context)
            self.direct(out, context, moves, moves, floored=False)
        else:
            momentum = self.momenta.of(tensor, context).lerp_(tensor.float(), 1 - self.beta1)
            yield from self.mean.rounds(momentum, context, momentum)
            self.direct(out, context, moves, self.warm_up_steps, floored=True)
        if error is not None:
            error.zero_()  # all of it is kept here
