from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import FeedbackMode, Traits
from compressors.parts.blockwise import BlockSize, Blockwise


class Int8(Blockwise):
    """Quantise blocks to 8 bits, scaled by their largest entry.

    Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, arXiv:1511.04561; blocks as in
    Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", ICLR 2022, arXiv:2110.02861,
    section 2.1.
    Differs from the papers: a linear code of 255 levels, rounded to nearest.

    Biased (deterministic rounding); not linear, so payloads are gathered, or averaged in two shots, which encodes
    twice: bounds are of one encoding. The error of a value is, but for rounding in float32, at most 1/254 of its
    block's largest magnitude; a block with nothing above 1.49e-36 is sent as zeros. A block that holds NaN or infinity
    decodes to NaN.
    Wire: scales (ceil(n / block_size),) float32, then codes (n,) int8; 4 ceil(n / block_size) + n bytes.
    Keeps no state.

    Args:
        block_size: Values that share a scale.

    Raises:
        ValueError: block_size is not a whole number from 8 to 2**20.
    """

    top = 127.0

    def __init__(self, *, block_size: BlockSize = 256, feedback: FeedbackMode = "auto") -> None:
        super().__init__(block_size=block_size, feedback=feedback)
        # Each error is at most 1/254 of its block's largest magnitude.
        self.traits = Traits(contraction=max(0.0, 1 - block_size / 254**2 * 1.001))

    def code(self, scaled: Tensor, codes: Tensor) -> None:
        codes.view(torch.int8).copy_(scaled.round_())

    def value(self, codes: Tensor, values: Tensor) -> None:
        values.copy_(codes.view(torch.int8))
