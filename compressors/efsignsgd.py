from __future__ import annotations

from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.parts.block_signs import BlockSigns, BlockSize


class EFSignSGD(Compressor):
    """Send signs, and each block's mean magnitude.

    Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML
    2019, arXiv:1901.09847, Algorithm 1: the scaled sign (|x|_1 / n) sign(x) with error feedback.
    Differs from the paper: values share a scale by blocks, not by layers; gradients, not updates, are compressed, so
    that the optimizer stays as it is; residuals are kept by `ErrorFeedback`.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are of one
    encoding. Needs error feedback. With n = block_size, each block has
    |x - C(x)|^2 = (1 - |x|_1^2 / (n |x|^2)) |x|^2, which is (1 - 1/n) |x|^2 at most, and (1 - 2/pi) |x|^2 for
    Gaussian values. Zero counts as above zero. NaN and infinity show in the whole block; magnitudes above 3.4e38 / n
    may do so.
    Wire: scales (ceil(n / block_size),) float32, then signs (ceil(n / 8),) packed;
    4 ceil(n / block_size) + ceil(n / 8) bytes.
    Keeps no state.

    Args:
        block_size: Values that share a scale.

    Raises:
        ValueError: block_size is not a multiple of 8, or above 2**20.
    """

    def __init__(self, *, block_size: BlockSize = 1024, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.block_size = block_size
        self._signs = BlockSigns(block_size)
        self.traits = Traits(feedback="required", contraction=0.999 / block_size)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return self._signs.size_bytes(layout.numel)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return self._signs.encode(tensor)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        self._signs.decode(payload, out, type(self).__name__, add=add, scale=scale)
