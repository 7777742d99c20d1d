"""Payloads are bytes: how tensors become them, and how wrong ones are refused."""

from __future__ import annotations

import torch
from torch import Tensor


class PayloadError(ValueError):
    """A payload is truncated, damaged, or was made by another compressor."""


class NonFiniteError(ValueError):
    """The compressor cannot carry NaN or infinity, and the tensor holds some."""


class PointToPointError(TypeError):
    """The compressor reduces among all ranks and cannot encode for one receiver."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has no payload of its own: it works among all ranks, never point to point")


def to_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, as 1-D uint8; a view where the tensor is contiguous."""
    flat = tensor.contiguous().view(-1)
    if flat.numel() == 1:  # contiguous at any stride, as torch has it
        flat = flat.as_strided((1,), (1,))
    return flat.view(torch.uint8)


def from_bytes(payload: Tensor, dtype: torch.dtype) -> Tensor:
    """The opposite of `to_bytes`. A stretch of a payload need not be aligned; then it is copied."""
    if payload.storage_offset() % dtype.itemsize:
        payload = payload.clone()
    return payload.view(dtype)


def require_finite(tensor: Tensor, name: str) -> None:
    """Refuse what a compressor cannot carry or might overlook.

    Raises:
        NonFiniteError: the tensor holds NaN or infinity.
    """
    if tensor.numel() and not all(bool(end.isfinite()) for end in tensor.aminmax()):
        raise NonFiniteError(f"{name}: the bucket holds NaN or infinity; the training has diverged")


def put(out: Tensor, value: Tensor, add: bool, scale: float) -> None:
    """The end of every `decode`; `out` may have fewer bits than `value`, which is scaled before it is rounded."""
    if add:
        out.add_(value, alpha=scale)
    elif scale == 1.0:
        out.copy_(value)
    else:
        torch.mul(value, scale, out=out)


def require_bytes(payload: Tensor) -> None:
    """Refuse what is no payload at all."""
    if payload.dtype != torch.uint8 or payload.dim() != 1:
        raise PayloadError(f"a payload is a 1-D uint8 tensor, found {payload.dim()}-D {payload.dtype}")


def require_size(payload: Tensor, size_bytes: int, name: str, numel: int) -> None:
    """Refuse a payload whose size cannot be right."""
    require_bytes(payload)
    if len(payload) != size_bytes:
        raise PayloadError(f"{name} payload for {numel} elements: expected {size_bytes} bytes, found {len(payload)}")
