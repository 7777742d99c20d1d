from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import Context, Traits
from compressors.parts.halves import Halves


class BFloat16(Halves):
    """Send bfloat16, rounded to nearest, ties to even.

    Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training", arXiv:1905.12322.
    Differs from the paper: only gradients on the wire are bfloat16.

    Linear: summed on the way in bfloat16, so each sum rounds once more; not unbiased. Relative error at most 2**-8 for
    magnitudes from 1.2e-38 up. Nothing is saturated, since the exponents are float32's: values, and sums of ranks, of
    3.4e38 and more become infinity, as they do without compression; NaN and infinity stay.
    Wire: values (n,) bfloat16; 2n bytes.
    Keeps no state.
    """

    traits = Traits(sum_dtype=torch.bfloat16)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        payload = torch.empty(2 * tensor.numel(), dtype=torch.uint8, device=tensor.device)
        payload.view(torch.bfloat16).copy_(tensor)
        return payload
