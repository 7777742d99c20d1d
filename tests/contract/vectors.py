"""Buckets that sparse compressors may find hard, and what is right for them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from compressors.base.compressor import Context, Layout
from compressors.parts.selection import SAMPLES
from tests.contract.lockstep import contexts

MANY = 300_001
"""Entries among which the largest are found by a sampled threshold."""


def context_of(numel: int, *, step: int = 0, seed: int = 0) -> Context:
    return contexts(Layout(((numel,),)), None, 1, step=step, seed=seed)[0]


def normal(numel: int, seed: int = 0) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def uniform(numel: int, seed: int = 0) -> Tensor:
    return torch.rand(numel, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def laplacian(numel: int, seed: int = 0) -> Tensor:
    signs = 1.0 - 2.0 * (uniform(numel, seed + 1) < 0.5)
    return (signs * -(1 - uniform(numel, seed)).log()).float()


def first_of_the_largest(tensor: Tensor, k: int) -> Tensor:
    """By sorting all of them, magnitudes first, places next."""
    magnitudes = (tensor.view(torch.int32) & 0x7FFFFFFF).long()
    order = (magnitudes * 2**31 - torch.arange(len(tensor))).sort(descending=True).indices
    return order[:k].sort().values


def hard(kind: str, numel: int) -> Tensor:
    values = normal(numel)
    if kind == "periodic":  # as the sample is, which then sees the large ones alone, or none of them
        return values * torch.where(torch.arange(numel) % (MANY // SAMPLES | 1) == 1, 100.0, 0.01)
    if kind == "one stretch":
        return torch.where(torch.arange(numel) < numel // 500, values * 1e3, values)
    if kind == "few values":
        return values.mul(2).round()
    if kind == "sparse":
        return torch.where(torch.rand(numel, generator=torch.Generator().manual_seed(1)) < 0.003, values, 0.0)
    if kind == "not finite":
        values[numel // 2], values[numel // 3], values[-1] = math.nan, -math.inf, math.inf
        return values
    return torch.zeros(numel) if kind == "zeros" else values


KINDS = ("normal", "periodic", "one stretch", "few values", "sparse", "not finite", "zeros")
