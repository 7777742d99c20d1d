from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout, Traits
from compressors.base.payload import from_bytes, put, require_size, to_bytes


class Uncompressed(Compressor):
    """Send every float32: the baseline.

    Lossless, linear, summed in float32 on the way.
    Wire: values (n,) float32; 4n bytes.
    Keeps no state.
    """

    traits = Traits(verbatim=True, sum_dtype=torch.float32, unbiased=True, contraction=1.0)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 4 * layout.numel

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return to_bytes(tensor.to(torch.float32, copy=True))

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        require_size(payload, 4 * out.numel(), type(self).__name__, out.numel())
        put(out, from_bytes(payload, torch.float32), add, scale)
