from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from torch import Tensor

from compressors.base.compressor import Context, Exchange, FeedbackMode, Layout, Rounds, Route
from compressors.base.memory import Memory
from compressors.parts.adam import CompressedAdam
from compressors.parts.block_signs import BlockSize
from compressors.parts.dense import dense_copy, dense_sent_bytes
from testbed.core.kinds import PowerOfTwo
from testbed.core.parameters import Count, Fraction, LearningRate, Share


class ZeroOneAdam(CompressedAdam):
    """Run Adam with ever rarer variance updates, sending momentum signs.

    Be Adam with a variance that is renewed more and more rarely, with momentum sent as signs, then not every step.

    Lu, Li, Zhang, De Sa, He, "Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam", ICLR 2023,
    arXiv:2202.06009, Algorithm 1, with the policies of its experiments: the variance is renewed in steps whose distance
    doubles after each `variance_renewals` of them, and no more from step `freeze_step` on; from there momenta are
    averaged in steps whose distance doubles after each `interval_steps` steps, up to `longest_interval`.
    Differs from the paper: parameters are the same on all ranks after every step, so between two averages nothing
    moves: the movements of these steps are added up and made at once, from gradients that were all taken at one point.
    Where gradients are sent as they are, their mean serves m too, and no signs are sent. Further, values share a
    magnitude by blocks; biases are corrected; the root of v has a floor once signs are sent; weight decay, of the
    workload's optimizer, is decoupled and goes on between averages.

    With u the sum over the steps since the last average of m = b1 m + (1 - b1) g of this rank, and k their number: u is
    averaged by signs with residuals on both sides, then m = u / k, and the output is u / (sqrt(v) + eps), not a mean.
    In the steps between the output is zeros, and nothing is sent. The optimizer becomes plain SGD.
    Residuals are kept here, so error feedback is refused. Not point to point. NaN and infinity show, where they come
    between averages, in the next one.
    Wire: where the variance is renewed gradients, (n,) float32, summed; where momenta are averaged signs and scales of
    blocks, 4 ceil(n / block_size) + ceil(n / 8) bytes, gathered among two ranks, in two shots among more. Scales may
    differ in their last bits between kinds of device.
    Keeps m, v, u and residuals, 16 bytes a parameter, and 4 for those of the part it averages. In other buckets all
    follow their parameters.

    Args:
        variance_renewals: Variance renewals before their distance doubles (kappa).
        freeze_step: Step at which the variance freezes; too early diverges. From then on averages may be skipped.
            Up to there 45 of 100 steps are uncompressed: they send 52 % of the uncompressed bytes in a run of 80 steps,
            13 % in one of 400, most of the total. Frozen at step 40, one of three trainings of glyphs diverged.
        interval_steps: Steps after which averages become half as frequent.
        longest_interval: Most steps between averages (H).
        learning_rate: Adam's learning rate; null: the workload's.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        eps: Term added to the denominator.
        floor: Lower bound of sqrt(v), relative to its tensor's mean. It holds once signs were sent.
        block_size: Values that share a magnitude.

    Raises:
        ValueError: a parameter is out of its range.
    """

    def __init__(
        self,
        *,
        variance_renewals: Count = 16,
        freeze_step: Count = 100,
        interval_steps: Count = 32,
        longest_interval: Annotated[int, PowerOfTwo(1)] = 4,
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
        self.variance_renewals, self.freeze_step = variance_renewals, freeze_step
        self.interval_steps, self.longest_interval = interval_steps, longest_interval
        self.sums = Memory()

    def renews(self, step: int) -> bool:
        """Return True if the variance is renewed in this step."""
        distance, first = _segment(step, self.variance_renewals)
        return step < self.freeze_step and (step - first) % distance == 0

    def renewals(self, step: int) -> int:
        """Return the number of renewals up to `step`, with it."""
        last = min(step, self.freeze_step - 1)
        distance, first = _segment(last, self.variance_renewals)
        return self.variance_renewals * (distance.bit_length() - 1) + (last - first) // distance + 1

    def averaged(self, step: int) -> int:
        """Return the number of steps, with this one, that momenta are averaged over; 0: not in this step."""
        since = step - self.freeze_step
        if since < 0:
            return 1
        segment, offset = divmod(since, self.interval_steps)
        interval = min(2**segment, self.longest_interval) if segment < 64 else self.longest_interval
        whole = interval == self.longest_interval
        if whole:  # the last segment has no end
            first = (self.longest_interval.bit_length() - 1) * self.interval_steps
            offset = since - first
        done = offset % interval + 1
        at_end = done == interval or (not whole and offset == self.interval_steps - 1)
        return done if at_end else 0

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        if self.renews(context.step):
            return 4 * layout.numel
        return self.mean.size_bytes(layout.numel) if self.averaged(context.step) else 0

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        if self.renews(step):
            return dense_sent_bytes(layout, world_size)
        return self.mean.sent_bytes(layout, world_size) if self.averaged(step) else 0

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        step = context.step
        moves, updates = step + 1, self.renewals(step)
        floored = step >= min(self.variance_renewals, self.freeze_step)
        if self.renews(step):
            (total,) = yield Exchange(kind="all_reduce", data=[dense_copy(tensor)])
            self.add_mean(total.mul_(1 / context.world_size), context)
            self.direct(out, context, moves, updates, floored=floored)
        else:
            momentum = self.momenta.of(tensor, context).lerp_(tensor.float(), 1 - self.beta1)
            summed = self.sums.of(tensor, context).add_(momentum)
            if count := self.averaged(step):
                yield from self.mean.rounds(summed, context, momentum)
                self.direct(out, context, moves, updates, floored=floored)
                momentum.mul_(1 / count)
                summed.zero_()
            else:
                out.zero_()
        if error is not None:
            error.zero_()  # all of it is kept here

    def _memories(self) -> Iterator[tuple[str, Memory]]:
        yield from super()._memories()
        yield "sums", self.sums


def _segment(step: int, renewals: int) -> tuple[int, int]:
    """Return (distance of renewals, first step with it): `renewals` of them 1 apart, then as many 2 apart, ..."""
    distance = 2 ** ((step // renewals + 1).bit_length() - 1)
    return distance, renewals * (distance - 1)
