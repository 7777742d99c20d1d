"""Ranks in one process: their rounds advance in lockstep, exchanges happen in memory, bytes are counted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compressors.base import SIZE_BYTES, Compressor, Context, Exchange, Layout, Rounds, Route


def contexts(layout: Layout, route: Route | None, world_size: int, *, step: int = 0, seed: int = 0) -> list[Context]:
    return [
        Context(layout=layout, route=route, seed=seed, step=step, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]


def drive(rounds: Sequence[Rounds]) -> int:
    """Run one reduction on all ranks to its end; return the bytes all of them sent, padding and sizes included."""
    sent = 0
    results: Sequence[list[Tensor] | None] = [None] * len(rounds)
    while True:
        asked = []
        for r, result in zip(rounds, results, strict=True):
            try:
                asked.append(r.send(result) if result is not None else next(r))
            except StopIteration:
                continue
        if not asked:
            return sent
        assert len(asked) == len(rounds), "some ranks ended, others ask for more"
        results, count = exchange(asked)
        sent += count


def exchange(asked: Sequence[Exchange]) -> tuple[list[list[Tensor]], int]:
    """What each rank gets, and the bytes all ranks send, those of the runtime's question for sizes too."""
    world_size, kind = len(asked), asked[0].kind
    assert {e.kind for e in asked} == {kind}, "ranks ask for different collectives"
    if kind == "all_reduce":
        total = asked[0].data[0].clone()
        for other in asked[1:]:
            assert (other.data[0].shape, other.data[0].dtype) == (total.shape, total.dtype)
            total = total + other.data[0] if other.op == "sum" else torch.maximum(total, other.data[0])
        return [[total.clone()] for _ in asked], 2 * (world_size - 1) * total.nbytes
    query = 0 if asked[0].sizes is not None else world_size * (world_size - 1) * SIZE_BYTES
    if kind == "all_gather":
        payloads = [e.data[0] for e in asked]
        _require_sizes(asked, [payloads] * world_size)
        width = max(map(len, payloads))
        return [[p.clone() for p in payloads] for _ in asked], world_size * (world_size - 1) * width + query
    received = [[asked[source].data[rank].clone() for source in range(world_size)] for rank in range(world_size)]
    _require_sizes(asked, received)
    sent = sum(len(p) for rank, e in enumerate(asked) for to, p in enumerate(e.data) if to != rank)
    return received, sent + query


def _require_sizes(asked: Sequence[Exchange], received: Sequence[Sequence[Tensor]]) -> None:
    for e, payloads in zip(asked, received, strict=True):
        assert e.sizes is None or list(e.sizes) == [len(p) for p in payloads], "announced sizes are not those sent"


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
    world_size = len(compressors)
    means = [torch.full((layout.numel,), torch.nan) for _ in compressors]
    errors = [torch.full((layout.numel,), torch.nan) for _ in compressors]
    rounds = [
        c.rounds(t, context, out=mean, error=error)
        for c, t, context, mean, error in zip(
            compressors, tensors, contexts(layout, route, world_size, step=step, seed=seed), means, errors, strict=True
        )
    ]
    return means, errors, drive(rounds)
