"""Layers of two factors: U, from the inputs to `rank` channels, then V, from these to the outputs and with the bias."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor, nn

from testbed.worker.methods.low_rank.spectrum import factors

Full: TypeAlias = nn.Linear | nn.Conv2d


class LowRankLinear(nn.Module):
    """y = V (U x) + b: U is [rank, inputs], V [outputs, rank]."""

    def __init__(self, u: nn.Linear, v: nn.Linear) -> None:
        super().__init__()
        self.u, self.v = u, v

    def forward(self, inputs: Tensor) -> Tensor:
        return self.v(self.u(inputs))


class LowRankConv2d(nn.Module):
    """A convolution of the full one's kernel, stride, padding and dilation to `rank` channels, then one of one place.

    Args:
        norm: batch normalisation between both, as in Pufferfish's public code.
    """

    def __init__(self, u: nn.Conv2d, v: nn.Conv2d, norm: nn.BatchNorm2d | None = None) -> None:
        super().__init__()
        self.u, self.norm, self.v = u, norm, v

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.u(images)
        return self.v(hidden if self.norm is None else self.norm(hidden))


LowRank: TypeAlias = LowRankLinear | LowRankConv2d


def low_rank(full: Full, rank: int, *, extra_norm: bool = False) -> tuple[LowRank, float]:
    """The layer of two factors that is nearest to `full`, whose bias it takes over as it is.

    Nothing is drawn from torch's generators.

    Args:
        extra_norm: between the factors of a convolution; it starts afresh, and then the layer computes something else.

    Returns:
        It, and the norm of what the weight lost, over the weight's.
    """
    u, v, lost = factors(full.weight, rank)
    made: LowRank
    if isinstance(full, nn.Linear):
        made = LowRankLinear(bare_linear(u), bare_linear(v))
    else:
        first = bare_conv(full.in_channels, rank, full)
        first.weight = nn.Parameter(u.view(rank, full.in_channels, *full.kernel_size))
        second = bare_conv(rank, full.out_channels)
        second.weight = nn.Parameter(v.view(full.out_channels, rank, 1, 1))
        norm = nn.BatchNorm2d(rank, dtype=u.dtype, device=u.device) if extra_norm else None
        made = LowRankConv2d(first, second, norm)
    made.v.bias = full.bias
    return made.train(full.training), lost


def bare_linear(weight: Tensor) -> nn.Linear:
    """Without a bias."""
    with torch.device("meta"):  # makes no numbers
        made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight = nn.Parameter(weight)
    return made


def bare_conv(inputs: int, outputs: int, like: nn.Conv2d | None = None) -> nn.Conv2d:
    """Without a bias, and yet without a weight; of one place, or of the places of `like`."""
    with torch.device("meta"):
        if like is None:
            return nn.Conv2d(inputs, outputs, 1, bias=False)
        return nn.Conv2d(
            inputs,
            outputs,
            like.kernel_size,  # type: ignore[arg-type]
            stride=like.stride,  # type: ignore[arg-type]
            padding=like.padding,  # type: ignore[arg-type]
            dilation=like.dilation,  # type: ignore[arg-type]
            padding_mode=like.padding_mode,
            bias=False,
        )
