"""Base of compressors that send each value as a float of 16 bits, and sum those."""

from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Compressor, Context, Layout
from compressors.base.payload import from_bytes, put, require_size


class Halves(Compressor):
    """Decoder of values of `traits.sum_dtype`. Wire: values (n,) of that type; 2n bytes."""

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 2 * layout.numel

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        require_size(payload, 2 * out.numel(), type(self).__name__, out.numel())
        dtype = self.traits.sum_dtype
        assert dtype is not None
        halves = from_bytes(payload, dtype)
        if not add and scale == 1.0:
            out.copy_(halves)
            return
        for piece in chunks(out):
            if not add and out.dtype is torch.float32:
                out[piece].copy_(halves[piece]).mul_(scale)
            else:
                put(out[piece], halves[piece].float(), add, scale)
