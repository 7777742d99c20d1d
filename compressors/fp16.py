from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Context, Route, Traits
from compressors.parts.halves import Halves


class Float16(Halves):
    """Send IEEE half precision.

    Micikevicius et al., "Mixed Precision Training", ICLR 2018, arXiv:1710.03740.
    Differs from the paper: only gradients on the wire are halves, and losses are not scaled.

    Linear: halves are summed on the way in float16, so each sum rounds once more. A value that is to be summed is first
    divided by d, the least power of two that is not below the number of ranks; point to point d is 1. So the mean of
    values up to 65504 arrives. A mean above that becomes infinity, as does a single value above 65504 d; NaN and
    infinity stay. Nothing is saturated, so that a training that diverges shows. torch's fp16_compress_hook rounds first
    and then divides by the number of ranks.
    Relative error below 2**-11 for magnitudes from 6.1e-5 d up; smaller ones lose bits, those below 3e-8 d become 0.
    Wire: values (n,) float16; 2n bytes.
    Keeps no state.
    """

    traits = Traits(sum_dtype=torch.float16)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        payload = torch.empty(2 * tensor.numel(), dtype=torch.uint8, device=tensor.device)
        halves, scale = payload.view(torch.float16), 1 / _divisor(context)
        for piece in chunks(tensor):
            torch.mul(tensor[piece].float(), scale, out=halves[piece])
        return payload

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        super().decode(payload, out, context, add=add, scale=scale * _divisor(context))


def _divisor(context: Context) -> int:
    """Return d: a power of two, since dividing by another number would cost bits of every value."""
    return 1 << (context.world_size - 1).bit_length() if context.route is Route.REDUCE_SUM else 1
