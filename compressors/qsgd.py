from __future__ import annotations

from torch import Tensor

from compressors.base.compressor import FeedbackMode, Traits
from compressors.parts.stochastic import BucketSize, Levels, RandomLevels, norms


class QSGD(RandomLevels):
    """Round at random to levels of the bucket's norm.

    Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
    NeurIPS 2017, arXiv:1610.02132, section 3.1, with the buckets of section 4.
    Differs from the paper: codes have a fixed width, no Elias coding; a sign and a level are one code.

    Unbiased; not linear, so payloads are gathered or, where the bound below is at most a tenth of |x|^2, averaged in
    two shots, which encodes twice: the loss of the second encoding is the same on all ranks, and does not average out
    over them. In one encoding an error is less than the bucket's norm / levels, and E|x - C(x)|^2 <= bucket_size /
    (4 levels^2) |x|^2. No error feedback: residuals of an unbiased rounding only add up.
    A bucket that holds NaN or infinity decodes to NaN, one whose norm is beyond float32 to NaN or infinity; one whose
    norm is below 1e-36 is sent as zeros.
    Wire: norms (ceil(n / bucket_size),) float32, then codes (n,) of b bits; 4 ceil(n / bucket_size) + ceil(n b / 8)
    bytes, b = 2 for 1 level, 4 up to 7, 8 up to 127.
    Keeps no state.

    Args:
        levels: Levels from zero to the norm (s).
        bucket_size: Values that share a norm.

    Raises:
        ValueError: levels is not a whole number from 1 to 127, or bucket_size not one from 8 to 2**20.
    """

    def __init__(self, *, levels: Levels = 127, bucket_size: BucketSize = 512, feedback: FeedbackMode = "auto") -> None:
        super().__init__(levels=levels, bucket_size=bucket_size, feedback=feedback)
        # A value between two levels is off by a variance of at most a quarter of their distance squared.
        kept = 1 - 1.001 * bucket_size / (4 * levels**2)
        self.traits = Traits(
            unbiased=True,
            feedback="harmful",
            contraction=kept if kept > 0 else None,
            # In two shots the noise of the second encoding is the same on all ranks: more than that is too much there.
            chunkable=kept >= 0.9,
        )

    def scales(self, rows: Tensor, count: int) -> Tensor:
        return norms(rows)
