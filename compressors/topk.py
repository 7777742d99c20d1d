from __future__ import annotations

from torch import Tensor

from compressors.base.compressor import Context, FeedbackMode, Traits
from compressors.parts.selection import largest
from compressors.parts.sparse import Sparsifier, kept_of
from testbed.core.parameters import Share


class TopK(Sparsifier):
    """Send the k largest entries of each bucket.

    Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017, arXiv:1704.05021.
    Differs from the paper: k is exact in every bucket, and a threshold from a sample only filters candidates first;
    residuals are kept by `ErrorFeedback`.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are of one
    encoding. |x - C(x)|^2 <= (1 - k/n) |x|^2. Use with error feedback.
    Among equal magnitudes the first ones go; NaN counts as larger than infinity.
    Wire: values (k,) float32, then indices (k,) int32, ascending; 8k bytes with k = ceil(density * n).
    Keeps no state.

    Args:
        density: Kept / all entries.

    Raises:
        ValueError: density is not in (0, 1], or a bucket has more than 2**31 - 1 entries.
    """

    def __init__(self, *, density: Share = 0.01, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.density = density
        self.traits = Traits(feedback="required", contraction=density)

    def kept(self, numel: int, context: Context) -> int:
        return kept_of(self.density, numel)

    def select(self, tensor: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return largest(tensor, self.kept(tensor.numel(), context), context)
