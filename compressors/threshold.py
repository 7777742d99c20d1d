from __future__ import annotations

import math
from typing import Annotated

from torch import Tensor

from compressors.base.chunks import root_mean_square
from compressors.base.compressor import Context, FeedbackMode, Traits
from compressors.parts.selection import at_least, at_least_one
from compressors.parts.sparse import Sparsifier
from testbed.core.kinds import Number
from testbed.core.parameters import Flag

_PLANNED = 0.01
"""Share of a bucket that is planned for if the threshold is absolute."""


class Threshold(Sparsifier):
    """Send entries at or above a threshold.

    Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015 (recalled).
    Differs from the paper: values go in full, not as one sign of the threshold's size; by default the threshold is a
    multiple of the bucket's root mean square, so that one number fits all layers, and the largest entry goes even if it
    is below. Residuals are kept by `ErrorFeedback`.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice. Use with error
    feedback. NaN and infinity are always sent; where there are some, a relative threshold is infinite.
    Wire: k (1,) int32, values (k,) float32, then indices (k,) int32, ascending; 4 + 8k bytes. k depends on the values:
    about 0.3 % of a Gaussian's at three times its root mean square, 1.4 % of a Laplacian's. The root mean square is
    summed in float64 and rounded to float32, so that devices agree but for a rare last bit.
    Keeps no state.

    Args:
        threshold: Least magnitude sent, in RMS of the bucket, or in units of the gradient with relative=false.
        relative: `threshold` is a multiple of the bucket's RMS.

    Raises:
        ValueError: threshold is not above 0 and below 1e38, relative is neither true nor false, or a bucket has more
            than 2**31 - 1 entries.
    """

    def __init__(
        self,
        *,
        threshold: Annotated[float, Number(above=0, below=1e38)] = 3.0,
        relative: Flag = True,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.threshold, self.relative = threshold, relative
        self.traits = Traits(fixed_size=False, feedback="required", contraction=0.0)

    def kept(self, numel: int, context: Context) -> int:
        """Return the expected share: that of a Laplacian above a relative threshold; 1 % for an absolute one."""
        share = math.exp(-math.sqrt(2) * self.threshold) if self.relative else _PLANNED
        return min(numel, max(1, math.ceil(share * numel)))

    def select(self, tensor: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        if not self.relative:
            return at_least(tensor, self.threshold)
        return at_least_one(tensor, self.threshold * root_mean_square(tensor), context)
