from __future__ import annotations

from functools import cache
from statistics import NormalDist

import torch
from torch import Tensor

from compressors.base.compressor import FeedbackMode, Traits
from compressors.parts.blockwise import BlockSize, Blockwise, contraction_of, look_up

_CELLS = 1 << 11
"""Cells of the table that finds codes, for each unit of a value over its scale."""


class NormalFloat4(Blockwise):
    """Quantise blocks to 4 bits, at quantiles of the normal distribution.

    Dettmers, Pagnoni, Holtzman, Zettlemoyer, "QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS 2023,
    arXiv:2305.14314, section 3 (NormalFloat).
    Differs from the paper: scales are float32, not quantised again. Levels are computed, as the authors' library does
    (recalled): 8 quantiles from one half to 1 - (1/30 + 1/32) / 2, 7 in the same way below, and zero, over the largest.

    Biased (deterministic rounding, to the nearest level but for values within 2**-12 of the middle between two, in
    units of the scale); not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are
    of one encoding. The error of a value is at most 0.153 of its block's largest magnitude. A block with nothing above
    1.17e-38 is sent as zeros; one that holds NaN or infinity decodes to NaN.
    Wire: scales float32, then codes, from the lowest level up, in two planes: byte i has the code of value i in its
    lower half and that of value ceil(n / 2) + i in its upper half; 4 (ceil(ceil(n / 2) / block_size) + ceil(floor(n /
    2) / block_size)) + ceil(n / 2) bytes.
    Keeps no state.

    Args:
        block_size: Values that share a scale. All are of one plane.

    Raises:
        ValueError: block_size is not a whole number from 8 to 2**20.
    """

    bits = 4

    def __init__(self, *, block_size: BlockSize = 64, feedback: FeedbackMode = "auto") -> None:
        super().__init__(block_size=block_size, feedback=feedback)
        self._levels, self._codes = _tables()
        contraction = contraction_of(self._levels.tolist(), block_size, slack=0.5 / _CELLS)
        self.traits = Traits(contraction=contraction)

    def code(self, scaled: Tensor, codes: Tensor) -> None:
        cells = scaled.mul_(_CELLS).add_(_CELLS + 1.5).to(torch.int32)
        torch.index_select(self._codes.to(codes.device), 0, cells, out=codes)

    def value(self, codes: Tensor, values: Tensor) -> None:
        look_up(self._levels, codes, values)


@cache
def _tables() -> tuple[Tensor, Tensor]:
    """Return (levels (16,) float32, ascending; code of each cell (2 _CELLS + 3,) uint8)."""
    largest = 1 - (1 / 30 + 1 / 32) / 2
    above = [NormalDist().inv_cdf(0.5 + (largest - 0.5) * index / 8) for index in range(1, 9)]
    below = [-NormalDist().inv_cdf(0.5 + (largest - 0.5) * index / 7) for index in range(7, 0, -1)]
    levels = torch.tensor([*below, 0.0, *above], dtype=torch.float64).div(above[-1])
    # Cell c is what is nearest to (c - 1) / _CELLS - 1; there is one more at each end, for rounding.
    centres = torch.arange(-1, 2 * _CELLS + 2, dtype=torch.float64).div(_CELLS).sub(1)
    return levels.float(), torch.bucketize(centres, (levels[1:] + levels[:-1]) / 2).to(torch.uint8)
