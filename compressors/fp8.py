from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from compressors.base.compressor import FeedbackMode, Traits
from compressors.parts.blockwise import BlockSize, Blockwise, contraction_of, look_up
from testbed.core.kinds import Choice

_FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


class Float8(Blockwise):
    """Send 8-bit floats, each block scaled to the largest one.

    Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433.
    Differs from the paper: scales are of blocks, float32, and computed for each step.

    Biased (deterministic rounding, to nearest, ties to even); not linear, so payloads are gathered, or averaged in two
    shots, which encodes twice: bounds are of one encoding. The error of a value is at most 1/16 of it with e4m3, 1/8
    with e5m2; below 3.5e-5 and 1.1e-9 of its block's largest magnitude, which are the smallest normal numbers, it is at
    most 2.2e-6 and 1.4e-10 of that. A block with nothing above 5.3e-36 (e4m3) or 6.8e-34 (e5m2) is sent as zeros. A
    block that holds NaN or infinity decodes to NaN.
    Wire: scales (ceil(n / block_size),) float32, then values over their scales (n,) float8;
    4 ceil(n / block_size) + n bytes.
    Keeps no state.

    Args:
        format: Number format: e4m3 (up to 448) or e5m2 (57344). They have 3 and 2 bits of mantissa.
        block_size: Values that share a scale.

    Raises:
        ValueError: format is unknown, or block_size is not a whole number from 8 to 2**20.
    """

    def __init__(
        self,
        *,
        format: Annotated[str, Choice(_FORMATS)] = "e4m3",
        block_size: BlockSize = 128,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(block_size=block_size, feedback=feedback)
        self.format, self._dtype = format, _FORMATS[format]
        self.top = torch.finfo(self._dtype).max
        # On the processor a table is read several times faster than torch converts.
        self._values = torch.arange(256, dtype=torch.int16).to(torch.uint8).view(self._dtype).float()
        levels = sorted(self._values[self._values.isfinite()].unique().tolist())
        self.traits = Traits(contraction=contraction_of(levels, block_size))

    def code(self, scaled: Tensor, codes: Tensor) -> None:
        # Rounding may have left the largest a little above the largest 8-bit float, to which it rounds back.
        codes.view(self._dtype).copy_(scaled)

    def value(self, codes: Tensor, values: Tensor) -> None:
        look_up(self._values, codes, values)
