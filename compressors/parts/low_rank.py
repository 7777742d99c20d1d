"""Base of compressors that send matrices as products of two thin ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout
from testbed.core.parameters import Count

TINY = 1e-30
"""Norm below which a factor's row is taken for zero."""


class LowRank(Compressor):
    """Base of compressors that send matrices (n, m) as products of two factors, (r, n) and (r, m).

    Factors are kept and sent as rows: products with them are several times as fast as with columns. They are kept by
    the names of parameters where layouts have them, so that they follow them into other buckets.
    """

    def __init__(self, *, rank: Count, feedback: FeedbackMode) -> None:
        super().__init__(feedback=feedback)
        self.rank = rank
        self.kept: dict[str, Tensor] = {}

    def is_thin(self, n: int, m: int) -> bool:
        """Return True if two factors are smaller than the matrix; then both are wider than they are high."""
        return self.rank * (n + m) < n * m

    def numels(self, layout: Layout) -> tuple[int, int, int]:
        """Return numbers of elements: (of all P, of all Q, of tensors that go as they are)."""
        p, q, rest = 0, 0, 0
        for n, m in map(matrix_shape, layout.shapes):
            if self.is_thin(n, m):
                p, q = p + self.rank * n, q + self.rank * m
            else:
                rest += n * m
        return p, q, rest

    def views(self, flat: Tensor, layout: Layout) -> tuple[list[Tensor], list[Tensor]]:
        """Return views of the matrices in a bucket, and of the rest."""
        matrices, rest = [], []
        for shape, piece in zip(layout.shapes, flat.split(layout.numels), strict=True):
            n, m = matrix_shape(shape)
            if self.is_thin(n, m):
                matrices.append(piece.view(n, m))
            else:
                rest.append(piece)
        return matrices, rest

    def keys(self, context: Context, side: str) -> list[str]:
        """Return the keys of the kept factors of a bucket, one for each matrix."""
        layout = context.layout
        names = layout.names or [f"{context.state_key}/{index}" for index in range(len(layout.shapes))]
        pairs = zip(names, map(matrix_shape, layout.shapes), strict=True)
        return [f"{side}{context.stream}:{name}" for name, (n, m) in pairs if self.is_thin(n, m)]

    def warm(self, key: str, length: int, index: int, context: Context, device: torch.device) -> Tensor:
        """Return the kept factor, (r, length).

        Rows that are zero or not finite, and all rows at first, are drawn, the same ones on all ranks.
        """
        kept = self.kept.get(key)
        if kept is not None and kept.shape == (self.rank, length):
            lengths = kept.norm(dim=1, keepdim=True)
            alive = (lengths > TINY) & lengths.isfinite()
            if bool(alive.all()):
                return kept
        generator = context.generator(f"factor {index}", shared=True)
        fresh = torch.randn(self.rank, length, generator=generator).to(device)
        return fresh if kept is None or kept.shape != fresh.shape else torch.where(alive, kept, fresh)

    def leave_error(
        self, tensor: Tensor, error: Tensor, layout: Layout, left: Sequence[Tensor], right: Sequence[Tensor]
    ) -> None:
        """Fill `error` with `tensor` minus the products of this rank's factors."""
        if error is not tensor:
            error.copy_(tensor)
        matrices, rest = self.views(error, layout)
        for matrix, p, q in zip(matrices, left, right, strict=True):
            matrix.addmm_(p.T, q, alpha=-1.0)
        for view in rest:
            view.zero_()

    def state_dict(self) -> dict[str, Any]:
        return {key: factor.clone() for key, factor in self.kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = {key: factor.clone() for key, factor in state.items()}

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        names = {name for layout in new for name in layout.names}
        return {key: factor for key, factor in state.items() if key.partition(":")[2] in names}


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return (n, m) of a tensor as a matrix; a vector is one row, which never pays."""
    if len(shape) < 2:
        return 1, math.prod(shape)
    return shape[0], math.prod(shape[1:])


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflat(tensor: Tensor, shapes: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    start = 0
    for shape in shapes:
        yield tensor[start : start + math.prod(shape)].view(*shape)
        start += math.prod(shape)


def orthonormalise(rows: Tensor) -> Tensor:
    """Return an orthonormal basis (r, n) of the span of `rows`, and of more if that has less than r dimensions.

    It is found by reflections, which no nearly parallel rows upset. It is not finite if `rows` are not.
    """
    return torch.linalg.qr(rows.T).Q.T
