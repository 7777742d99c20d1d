"""One codec, there and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Context, Layout
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts

NAN, INF = float("nan"), float("inf")


def context_of(numel: int, seed: int = 0) -> Context:
    return contexts(Layout(((numel,),)), None, 1, seed=seed)[0]


def gaussian(numel: int, seed: int = 0) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def encoded(name: str, tensor: Tensor, seed: int = 0, **params: Any) -> list[int]:
    return make(name, **params).encode(tensor, context_of(tensor.numel(), seed)).tolist()


def decoded(name: str, payload: Tensor, numel: int, **params: Any) -> Tensor:
    out = torch.full((numel,), 7.0)
    make(name, **params).decode(payload, out, context_of(numel))
    return out


def through(name: str, tensor: Tensor, seed: int = 0, **params: Any) -> Tensor:
    codec, context, out = make(name, **params), context_of(tensor.numel(), seed), torch.full_like(tensor, 7.0)
    codec.decode(codec.encode(tensor, context), out, context)
    return out
