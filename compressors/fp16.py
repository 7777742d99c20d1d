from __future__ import annotations

import math

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Context, Traits
from compressors.parts.halves import Halves

_MAX = 65504.0
"""Largest finite float16."""


class Float16(Halves):
    """Send IEEE half precision.

    Micikevicius et al., "Mixed Precision Training", ICLR 2018, arXiv:1710.03740.
    Differs from the paper: only gradients on the wire are halves; their scale is left as it is.

    Linear: halves are summed on the way in float16, so each sum rounds once more. Values are first held to a little
    below 65504 / world_size, so that no sum of ranks overflows; gradients that large are saturated, NaN stays NaN.
    Relative error below 2**-11 for magnitudes from 6e-5 up; smaller ones lose bits, those below 3e-8 become 0.
    Wire: values (n,) float16; 2n bytes.
    Keeps no state.
    """

    traits = Traits(sum_dtype=torch.float16)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        limit = _limit(context.world_size)
        payload = torch.empty(2 * tensor.numel(), dtype=torch.uint8, device=tensor.device)
        halves = payload.view(torch.float16)
        for piece in chunks(tensor):
            halves[piece] = tensor[piece].float().clamp(-limit, limit)
        return payload


def _limit(world_size: int) -> float:
    """The largest half of which `world_size` can be added up in halves, in any order, below infinity."""
    # Each of the world_size - 1 additions may round up by 2**-11 of the sum.
    limit = _MAX / (world_size * (1 + 2**-11) ** (world_size - 1))
    spacing = 2.0 ** (math.floor(math.log2(limit)) - 10)
    return math.floor(limit / spacing) * spacing
