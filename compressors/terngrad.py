from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from compressors.base.compressor import FeedbackMode, Traits
from compressors.base.exact import divide_
from compressors.parts.stochastic import BucketSize, RandomLevels, sums
from testbed.core.kinds import Number


class TernGrad(RandomLevels):
    """Send -1, 0 or 1 times the bucket's largest entry.

    Send each value as -1, 0 or 1 times its bucket's largest magnitude, at random with the value as expectation.

    Wen, Xu, Yan, Wu, Wang, Chen, Li, "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep
    Learning", NeurIPS 2017, arXiv:1705.07878, Algorithm 1; `clip_sigmas` is gradient clipping, there c = 2.5.
    Differs from the paper: buckets of equal size, not layers; each rank has scales of its own (none is shared first);
    clipping is off unless asked for, and sigma is taken about zero, so that few values are never clipped.

    Unbiased without clipping; with it biased, and the noise is less. Its noise is as large as the gradient or larger
    either way, so error feedback is refused: residuals of it only add up. Not linear, so payloads are gathered, among
    any number of ranks: in two shots the noise of a second encoding would be the same on all of them.
    A bucket that holds NaN or infinity decodes to NaN; one with nothing above 1e-36 is sent as zeros.
    Wire: scales (ceil(n / bucket_size),) float32, then codes (n,) of 2 bits; 4 ceil(n / bucket_size) + ceil(n / 4)
    bytes.
    Keeps no state.

    Args:
        bucket_size: Values that share a scale.
        clip_sigmas: Magnitudes are clipped at c RMS; null: never.

    Raises:
        ValueError: bucket_size is not a whole number from 8 to 2**20, or clip_sigmas neither None nor from 1 to 1e6.
    """

    def __init__(
        self,
        *,
        bucket_size: BucketSize = 512,
        clip_sigmas: Annotated[float, Number(least=1, below=1e6)] | None = None,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(levels=1, bucket_size=bucket_size, feedback=feedback)
        self.clip_sigmas = clip_sigmas
        self.clips = clip_sigmas is not None
        # In two shots the noise of the second encoding is the same on all ranks, and does not average out over them.
        self.traits = Traits(unbiased=clip_sigmas is None, feedback="harmful", chunkable=False)

    def scales(self, rows: Tensor, count: int) -> Tensor:
        largest = rows.abs().amax(dim=1)
        if self.clip_sigmas is None:
            return largest
        # relative to the largest, so that no square leaves float32
        relative = rows / torch.where(largest > 0, largest, 1.0).unsqueeze(1)
        energies = divide_(sums(relative.square_()), self.bucket_size)
        energies[-1] *= self.bucket_size / (count - (len(rows) - 1) * self.bucket_size)  # it may be short
        sigmas = energies.sqrt_().float()
        return torch.minimum(largest, sigmas.mul_(largest).mul_(self.clip_sigmas))
