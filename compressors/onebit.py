from __future__ import annotations

from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.parts.block_signs import BlockSigns, BlockSize


class OneBit(Compressor):
    """Send one bit per value, for two means per block.

    Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
    Training of Speech DNNs", Interspeech 2014: threshold 0, two reconstruction values.
    Differs from the paper: values share means by blocks, not by columns of a matrix; residuals are kept by
    `ErrorFeedback`.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are of one
    encoding. Needs error feedback. With n = block_size, |x - C(x)|^2 <= (1 - 1/n) |x|^2, with one value above zero in a
    block; Gaussian values lose 1 - 2/pi of their energy. NaN and infinity show in the whole block; magnitudes above
    3.4e38 / n may do so.
    Wire: means (ceil(n / block_size), 2) float32, then signs (ceil(n / 8),) packed;
    8 ceil(n / block_size) + ceil(n / 8) bytes.
    Keeps no state.

    Args:
        block_size: Values that share two means.

    Raises:
        ValueError: block_size is not a multiple of 8, or above 2**20.
    """

    def __init__(self, *, block_size: BlockSize = 1024, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.block_size = block_size
        self._signs = BlockSigns(block_size, means=2)
        self.traits = Traits(feedback="required", contraction=0.999 / block_size)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return self._signs.size_bytes(layout.numel)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return self._signs.encode(tensor)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        self._signs.decode(payload, out, type(self).__name__, add=add, scale=scale)
