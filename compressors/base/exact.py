"""Arithmetic with the same bits on every kind of device, where torch's own has a device's."""

from __future__ import annotations

import torch
from torch import Tensor


def divide_(values: Tensor, divisor: float) -> Tensor:
    """Divide in place by a number, rounding once, and return `values`.

    Given a Python number, some kinds of device multiply by its reciprocal, which rounds twice.
    """
    return values.div_(torch.full((), divisor, dtype=values.dtype, device=values.device))


def row_sums(values: Tensor) -> Tensor:
    """Return the sums along dimension 1, added in one order: each time the second half to the first.

    Args:
        values: any float, of two dimensions and more; overwritten.
    """
    width = values.shape[1]
    if not width:
        return values.sum(dim=1)
    while width > 1:
        half = (width + 1) // 2
        values[:, : width - half].add_(values[:, half:width])
        width = half
    return values[:, 0]


def float_spacing(largest: Tensor) -> Tensor:
    """Return float64: the distance of float32s as large as `largest`, float32, not negative; infinite of NaN."""
    powers = largest.view(torch.int32).bitwise_and(0x7F800000).view(torch.float32)
    return powers.double().clamp_(min=2.0**-126).mul_(2.0**-23)
