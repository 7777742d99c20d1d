from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from compressors.base.compressor import FeedbackMode, Traits
from compressors.parts.blockwise import BlockSize, Blockwise, contraction_of, look_up

_SHIFT = 13
"""Bits of a float32 that the table that finds codes leaves out: its cells are at most 2**-10 of a value wide."""


class Dynamic8(Blockwise):
    """Quantise blocks to 8-bit numbers with a dynamic exponent.

    Quantise blocks of values to 8-bit numbers that spend bits on exponent or mantissa as they need.

    Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, arXiv:1511.04561 (dynamic tree data
    type); blocks as in Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", ICLR
    2022, arXiv:2110.02861, section 2.1.
    The first bit of a code is the sign; z zero bits follow, which stand for 10**-z, then a one, then a binary number
    of the 6 - z bits left, that picks one of 2**(6 - z) equal parts of [0.1, 1]; its middle is the value. 0 is 0.
    Differs from the papers: the largest code, 0.993, is the block's largest magnitude, which so is exact; the first
    paper scales by the largest of the whole tensor to 1. The range of the fraction is the second's (recalled).

    Biased (deterministic rounding, to the nearest but for values within 2**-11 of themselves of the middle
    between two); not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are of one
    encoding. The error of a value is at most 0.0076 of its block's largest magnitude; below a tenth of that, at most
    0.0015, and so on in steps of ten. A block with nothing above 1.17e-38 is sent as zeros; one that holds NaN or
    infinity decodes to NaN.
    Wire: scales (ceil(n / block_size),) float32, then codes (n,) of 8 bits; 4 ceil(n / block_size) + n bytes.
    Keeps no state.

    Args:
        block_size: Values that share a scale.

    Raises:
        ValueError: block_size is not a whole number from 8 to 2**20.
    """

    def __init__(self, *, block_size: BlockSize = 2048, feedback: FeedbackMode = "auto") -> None:
        self._values, self._codes = _tables()
        self.top = float(self._values[127])
        super().__init__(block_size=block_size, feedback=feedback)
        self.traits = Traits(contraction=contraction_of(self._values[:128].tolist(), block_size, slack=2.0**-11))

    def code(self, scaled: Tensor, codes: Tensor) -> None:
        bits = scaled.view(torch.int32)
        signs = (bits >> 31).to(torch.int8).view(torch.uint8)  # all ones where negative
        bits.bitwise_and_(0x7FFFFFFF).bitwise_right_shift_(_SHIFT)
        torch.index_select(self._codes.to(codes.device), 0, bits, out=codes)
        codes.bitwise_or_(signs.bitwise_and_(0x80))

    def value(self, codes: Tensor, values: Tensor) -> None:
        look_up(self._values, codes, values)


@cache
def _tables() -> tuple[Tensor, Tensor]:
    """Return (value of each code (256,) float32; code of each cell of a magnitude's bits, uint8)."""
    magnitudes = [0.0]
    for zeros in range(6, -1, -1):
        parts = 1 << 6 - zeros
        magnitudes += [10.0**-zeros * (0.1 + 0.9 * (part + 0.5) / parts) for part in range(parts)]
    levels = torch.tensor(magnitudes, dtype=torch.float64)
    # Up to 1: the largest code is below it, and rounding leaves nothing above.
    cells = torch.arange((0x3F800000 >> _SHIFT) + 1, dtype=torch.int32)
    centres = ((cells << _SHIFT) + (1 << _SHIFT - 1)).view(torch.float32).double()
    codes = torch.bucketize(centres, (levels[1:] + levels[:-1]) / 2).to(torch.uint8)
    return torch.cat([levels, -levels]).float(), codes
