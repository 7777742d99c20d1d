"""Tensors drawn by a texture: what a replay has in place of what training would have changed."""

from __future__ import annotations

import functools
import hashlib
import math

import numpy as np
import torch
from torch import Tensor

from testbed.worker.data.textures import NORMAL, RANKS, Texture

NOISE_NUMEL = 2**18
"""Values of a texture's noise that a process keeps: 1 MiB. A tensor takes stretches of it from random places."""
_STRETCH = 2**15
_CHUNK_NUMEL = 2**17
"""About so many values are made at once, which stay in the processor's caches."""
_SEED = 2026
_SQRT3 = math.sqrt(3)


def add_drawn(out: Tensor, texture: Texture, *, columns: int, scale: float, common: str, own: str) -> None:
    """Add drawn values to a tensor.

    Args:
        out: Contiguous float32 tensor of any shape, changed in place; its rows have `columns` values, the last perhaps
            fewer.
        texture: How they are made.
        columns: Values of a row.
        scale: Root mean square of what is added, but for the spread between tensors.
        common: Key of what all ranks draw alike in this round, "tensor/round"; rows and columns follow from the part
            before the first "/".
        own: Key of what this rank draws by itself.
    """
    flat = out.view(-1)
    rows = math.ceil(flat.numel() / columns)
    lasting, noise = _generator(common.partition("/")[0]), _Noise(texture, own)
    scale *= math.exp(texture.spread * float(torch.randn((), generator=lasting)))
    row = _factors(rows, texture.row_spread, lasting) * scale
    column = _factors(columns, texture.column_spread, lasting)
    left, right = _low_rank(texture, rows, columns, common, own)
    noisy = column * math.sqrt(1 - sum(texture.shares))
    step = max(1, _CHUNK_NUMEL // columns)
    for first in range(0, rows, step):
        here = slice(first, min(first + step, rows))
        count = here.stop - first
        block = noise.take(count * columns).view(count, columns).mul_(noisy)
        if left is not None:
            block.addmm_(left[here], right * column)
        block.mul_(row[here, None])
        part = flat[first * columns : here.stop * columns]
        part.add_(block.view(-1)[: part.numel()])


def _low_rank(texture: Texture, rows: int, columns: int, common: str, own: str) -> tuple[Tensor | None, Tensor]:
    """Return (left, right), of shapes (rows, 16) and (16, columns); left is None if there is no low rank."""
    if not any(texture.shares) or min(rows, columns) < RANKS[-1]:
        return None, torch.empty(0)
    together, alone = _generator(common), _generator(f"{own}/left")
    right = torch.randn(RANKS[-1], columns, generator=together)
    right[0] = _SQRT3 * (2 * torch.rand(columns, generator=together) - 1)
    left = torch.randn(rows, RANKS[-1], generator=together).mul_(math.sqrt(texture.agreement))
    left += math.sqrt(1 - texture.agreement) * torch.randn(rows, RANKS[-1], generator=alone)
    ends = (0, *RANKS)
    for share, first, end in zip(texture.shares, ends[:-1], RANKS, strict=True):
        left[:, first:end] *= math.sqrt(share / (end - first))
    return left, right


def _factors(count: int, spread: float, generator: torch.Generator) -> Tensor:
    """Return log-normal factors whose squares are 1 on average."""
    factors = torch.randn(count, generator=generator).mul_(spread).exp_()
    return factors / factors.square().mean().sqrt()


class _Noise:
    """Stretches of a texture's noise, from places that follow from a key."""

    def __init__(self, texture: Texture, key: str) -> None:
        self._values, self._chance = _noise(texture.quantiles), np.random.default_rng(_number(key))

    def take(self, numel: int) -> Tensor:
        """Return fresh values, float32 of shape (numel,), with memory of their own."""
        count = math.ceil(numel / _STRETCH)
        starts = self._chance.integers(0, NOISE_NUMEL - _STRETCH, count).tolist()
        return torch.cat([self._values[start : start + _STRETCH] for start in starts])[:numel]


@functools.cache
def _noise(quantiles: tuple[float, ...]) -> Tensor:
    normal = np.random.default_rng(_SEED).standard_normal(NOISE_NUMEL)
    values = np.interp(normal, NORMAL, quantiles)
    values /= math.sqrt(np.square(values).mean())
    return torch.from_numpy(values.astype(np.float32))


def _generator(key: str) -> torch.Generator:
    return torch.Generator().manual_seed(_number(key) >> 1)


def _number(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
