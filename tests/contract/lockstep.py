"""Ranks in one process, for tests of single compressors."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from compressors.base.compressor import Compressor, Layout, Route
from testbed.worker.laws.cases.lockstep import contexts, drive, exchange, reductions

__all__ = ["contexts", "drive", "exchange", "reduce_all"]


def reduce_all(
    compressors: Sequence[Compressor],
    tensors: Sequence[Tensor],
    layout: Layout,
    route: Route,
    *,
    step: int = 0,
    seed: int = 0,
) -> tuple[list[Tensor], list[Tensor], int]:
    """(mean of each rank, error of each rank, bytes sent)."""
    means, errors, tally = reductions(compressors, tensors, layout, route, step=step, seed=seed)
    return means, errors, tally.sent_bytes
