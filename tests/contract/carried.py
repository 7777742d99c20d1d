"""What becomes of one tensor, through one compressor alone or through ranks with rounds of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Layout, Route
from tests.contract.lockstep import contexts, reduce_all


def randn(seed: int, numel: int) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def carried(codec: Compressor, tensor: Tensor, seed: int = 0) -> Tensor:
    context = contexts(Layout(((tensor.numel(),),)), None, 1, seed=seed)[0]
    out = torch.full((tensor.numel(),), torch.nan)
    codec.decode(codec.encode(tensor, context), out, context)
    return out


def energy_lost(codec: Compressor, tensor: Tensor) -> float:
    """Of the energy."""
    return float((carried(codec, tensor) - tensor).square().sum() / tensor.square().sum())


def reduced(ranks: list[Compressor], tensors: list[Tensor], step: int) -> tuple[Tensor, list[Tensor], int]:
    layout = Layout(((tensors[0].numel(),),))
    means, errors, sent = reduce_all(ranks, tensors, layout, Route.OWN, step=step)
    return means[0], errors, sent
