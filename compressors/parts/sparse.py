"""Base of compressors that send some entries of a bucket and leave out the rest."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout
from compressors.base.payload import PayloadError, from_bytes, require_bytes, require_size, to_bytes

MAX_NUMEL = 2**31 - 1
"""Entries of a bucket: indices are int32."""


class Sparsifier(Compressor):
    """Base of compressors that send the entries that `select` picks.

    Wire: values (k,) float32, then indices (k,) int32, ascending; 8k bytes. Where k is not fixed, it goes before them
    as int32; 4 + 8k bytes.
    """

    is_sparse = True

    @abstractmethod
    def select(self, tensor: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return (indices (k,) int64, ascending; values (k,) float32) of `tensor`, 1-D, any float, any stride."""

    @abstractmethod
    def kept(self, numel: int, context: Context) -> int:
        """Return k for a bucket of `numel` entries; exact if `traits.fixed_size`, else the expected number."""

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return self._count_bytes() + 8 * self.kept(layout.numel, context)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        require_indices(tensor.numel(), type(self).__name__)
        indices, values = self.select(tensor, context)
        parts = [to_bytes(values), to_bytes(indices.to(torch.int32))]
        if not self.traits.fixed_size:
            count = torch.full((1,), len(values), dtype=torch.int32, device=values.device)
            parts.insert(0, to_bytes(count))
        return torch.cat(parts)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        name, numel = type(self).__name__, out.numel()
        k = self._carried(payload, numel, context)
        body = payload[self._count_bytes() :]
        values = from_bytes(body[: 4 * k], torch.float32)
        indices = from_bytes(body[4 * k :], torch.int32)
        require_ascending(indices, numel, name)
        scatter(out, indices, values, add, scale)

    def _count_bytes(self) -> int:
        return 0 if self.traits.fixed_size else 4

    def _carried(self, payload: Tensor, numel: int, context: Context) -> int:
        """k of a payload whose size is right for it."""
        name = type(self).__name__
        if self.traits.fixed_size:
            k = self.kept(numel, context)
            require_size(payload, 8 * k, name, numel)
            return k
        require_bytes(payload)
        k = int(from_bytes(payload[:4], torch.int32)) if len(payload) >= 4 else -1
        if not 0 <= k <= numel or len(payload) != 4 + 8 * k:
            raise PayloadError(
                f"{name} payload for {numel} elements: {len(payload)} bytes are not a count of at most {numel}"
                f" and 8 for each that it says, {k}"
            )
        return k


def kept_of(density: float, numel: int) -> int:
    """Entries that `density` of a bucket are: as many at least, and one at least of a bucket that has any."""
    return min(numel, max(1, math.ceil(density * numel - 1e-9)))


def require_indices(numel: int, name: str) -> None:
    """Refuse a bucket that is too large.

    Raises:
        ValueError: A bucket has more entries than int32 can count.
    """
    if numel > MAX_NUMEL:
        raise ValueError(f"a bucket of {numel} entries: the indices of {name} reach {MAX_NUMEL}")


def require_ascending(indices: Tensor, numel: int, name: str) -> None:
    """Refuse damaged indices.

    Raises:
        PayloadError: Indices do not ascend strictly, or leave the bucket.
    """
    if len(indices) and (indices[0] < 0 or indices[-1] >= numel or bool((indices[1:] <= indices[:-1]).any())):
        raise PayloadError(f"{name} payload for {numel} elements: indices do not ascend from 0 to below {numel}")


def scatter(out: Tensor, indices: Tensor, values: Tensor, add: bool, scale: float) -> None:
    """Put `scale` times `values` where `indices` say, zeros elsewhere, or add them: the end of a sparse `decode`."""
    if not add:
        out.zero_()
    out.index_add_(0, indices, values.to(out.dtype), alpha=scale)
