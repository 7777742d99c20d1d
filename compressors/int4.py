from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import FeedbackMode, Traits
from compressors.parts.blockwise import BlockSize, Blockwise, contraction_of


class Int4(Blockwise):
    """Quantise blocks to 4 bits, scaled by their largest entry.

    Wang et al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", ICLR 2024,
    arXiv:2306.10209, which sends gradients so; blocks as in Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers
    via Block-wise Quantization", ICLR 2022, arXiv:2110.02861, section 2.1.
    Differs from the papers: 15 levels, -7 to 7, around zero, rounded to nearest, so that zero stays zero.

    Biased (deterministic rounding); not linear, so payloads are gathered, or averaged in two shots, which encodes
    twice: bounds are of one encoding. The error of a value is, but for rounding in float32, at most 1/14 of its block's
    largest magnitude; a block with nothing above 8.3e-38 is sent as zeros. A block that holds NaN or infinity decodes
    to NaN.
    Wire: scales float32, then codes in two planes: byte i has the code of value i in its lower half and that of
    value ceil(n / 2) + i in its upper half, each plus 8; 4 (ceil(ceil(n / 2) / block_size) + ceil(floor(n / 2) /
    block_size)) + ceil(n / 2) bytes.
    Keeps no state.

    Args:
        block_size: Values that share a scale. All are of one plane.

    Raises:
        ValueError: block_size is not a whole number from 8 to 2**20.
    """

    bits = 4
    top = 7.0

    def __init__(self, *, block_size: BlockSize = 64, feedback: FeedbackMode = "auto") -> None:
        super().__init__(block_size=block_size, feedback=feedback)
        self.traits = Traits(contraction=contraction_of(range(-7, 8), block_size))

    def code(self, scaled: Tensor, codes: Tensor) -> None:
        # By way of int8: only that conversion is vectorised.
        codes.view(torch.int8).copy_(scaled.round_().add_(8.0))

    def value(self, codes: Tensor, values: Tensor) -> None:
        values.copy_(codes).sub_(8.0)
