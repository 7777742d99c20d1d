"""Payloads as bytes: conversions from and to tensors, and errors for wrong ones."""

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
    """Return the bytes of a tensor as 1-D uint8: a view if the tensor is contiguous, otherwise a copy."""
    flat = tensor.contiguous().view(-1)
    if flat.numel() == 1:  # contiguous at any stride, as torch has it
        flat = flat.as_strided((1,), (1,))
    return flat.view(torch.uint8)


def from_bytes(payload: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `payload` as 1-D of `dtype`: a view, or a copy if its bytes are not aligned for that type."""
    if payload.storage_offset() % dtype.itemsize:
        payload = payload.clone()
    return payload.view(dtype)


def require_finite(tensor: Tensor, name: str) -> None:
    """Refuse a tensor with NaN or infinity, which a compressor cannot carry or might overlook.

    Raises:
        NonFiniteError: The tensor holds NaN or infinity.
    """
    if tensor.numel() and not all(bool(end.isfinite()) for end in tensor.aminmax()):
        raise NonFiniteError(f"{name}: the bucket holds NaN or infinity; the training has diverged")


def require_finite_payload(values: Tensor, name: str, numel: int) -> None:
    """Refuse values of a payload that `name`, which carries no NaN and no infinity, never packs.

    Raises:
        PayloadError: There is some.
    """
    if not values.isfinite().all():
        raise PayloadError(f"{name} payload for {numel} elements: holds NaN or infinity, which {name} never packs")


def put(out: Tensor, value: Tensor, add: bool, scale: float) -> None:
    """Write `scale` times `value` into `out`, or add it; every `decode` ends with it.

    `out` may have fewer bits than `value`, which is scaled before it is rounded.
    """
    if add:
        out.add_(value, alpha=scale)
    elif scale == 1.0:
        out.copy_(value)
    else:
        torch.mul(value, scale, out=out)


def require_bytes(payload: Tensor) -> None:
    """Refuse a tensor that is no payload.

    Raises:
        PayloadError: It is not 1-D uint8.
    """
    if payload.dtype != torch.uint8 or payload.dim() != 1:
        raise PayloadError(f"a payload is a 1-D uint8 tensor, found {payload.dim()}-D {payload.dtype}")


def require_size(payload: Tensor, size_bytes: int, name: str, numel: int) -> None:
    """Refuse a payload that has not `size_bytes` bytes, as the one of `name` for `numel` elements has.

    Raises:
        PayloadError: It is not 1-D uint8, or has another size.
    """
    require_bytes(payload)
    if len(payload) != size_bytes:
        raise PayloadError(f"{name} payload for {numel} elements: expected {size_bytes} bytes, found {len(payload)}")
