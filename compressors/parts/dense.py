"""Steps in which a compressor with exchanges of its own sends a bucket uncompressed."""

from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import Layout


def dense_copy(tensor: Tensor) -> Tensor:
    """Return a contiguous float32 copy of `tensor`, for an exchange that may change it."""
    return tensor.to(dtype=torch.float32, copy=True, memory_format=torch.contiguous_format)


def dense_sent_bytes(layout: Layout, world_size: int) -> int:
    """Return the bytes that all ranks together send to sum `layout` in float32."""
    return 2 * (world_size - 1) * 4 * layout.numel
