"""Large tensors as slices that stay in a core's cache, so that a codec of many passes reads memory once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 1 << 16
"""Elements of a slice: 256 KiB of float32, a quarter of a usual second-level cache."""

_STRETCH = 512
_SAFE = 1e-15
"""Least norm whose squares float32 holds, but for some that do not count; the largest is its reciprocal."""


def chunks(tensor: Tensor, multiple: int = 1) -> Iterator[slice]:
    """Yield slices that cover a 1-D tensor in order; the length of each but the last is a multiple of `multiple`.

    On an accelerator one slice covers all: its kernels are worth starting for large tensors only.
    """
    numel = tensor.numel()
    size = max(CHUNK // multiple, 1) * multiple if tensor.device.type == "cpu" else max(numel, 1)
    for start in range(0, numel, size):
        yield slice(start, min(start + size, numel))


def root_mean_square(tensor: Tensor) -> float:
    """Return the root of the mean square of a 1-D tensor; NaN or infinity if an entry is.

    Norms are taken of 512 entries at a time, in float32. Their squares' sum in float64 is then right to nine digits, in
    a quarter of the time. Where squares could leave float32, all is done in float64.
    """
    if tensor.dtype == torch.float64:
        tensor = tensor.float()
    numel = tensor.numel()
    whole = numel // _STRETCH * _STRETCH
    stretches = torch.linalg.vector_norm(tensor[:whole].view(-1, _STRETCH), dim=1, dtype=torch.float32)
    rest = torch.linalg.vector_norm(tensor[whole:], dtype=torch.float64)
    norms = torch.cat([stretches.double(), rest.view(1)])
    largest = float(norms.max()) if numel else 1.0
    if _SAFE < largest < 1 / _SAFE:
        return math.sqrt(float(norms.square_().sum()) / max(numel, 1))
    squares = [torch.linalg.vector_norm(tensor[part].float(), dtype=torch.float64).square() for part in chunks(tensor)]
    return math.sqrt(float(torch.stack(squares).sum()) / numel)
