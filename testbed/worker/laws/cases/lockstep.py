"""Ranks in one process: their rounds advance in lockstep, exchanges happen in memory, bytes are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base.compressor import SIZE_BYTES, Compressor, Context, Exchange, Layout, Rounds, Route
from testbed.worker.laws.cases.registry import LawBroken, require


@dataclass
class Tally:
    """What one reduction took."""

    sent_bytes: int = 0
    """Of all ranks, padding and sizes included."""
    exchanges: int = 0
    sums_floats: bool = False
    """So that the order of three and more ranks shows in the last bits."""


def contexts(layout: Layout, route: Route | None, world_size: int, *, step: int = 0, seed: int = 0) -> list[Context]:
    return [
        Context(layout=layout, route=route, seed=seed, step=step, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]


def drive(rounds: Sequence[Rounds]) -> int:
    """Run one reduction on all ranks to its end; return the bytes all of them sent."""
    return tallied(rounds).sent_bytes


def tallied(rounds: Sequence[Rounds]) -> Tally:
    """Run one reduction on all ranks to its end."""
    tally = Tally()
    results: Sequence[list[Tensor] | None] = [None] * len(rounds)
    while True:
        asked = []
        with torch.no_grad():
            for r, result in zip(rounds, results, strict=True):
                try:
                    asked.append(r.send(result) if result is not None else next(r))
                except StopIteration:
                    continue
        if not asked:
            return tally
        require(len(asked) == len(rounds), f"{len(rounds) - len(asked)} ranks ended while others asked for an exchange")
        results, count = exchange(asked)
        tally.sent_bytes += count
        tally.exchanges += 1
        tally.sums_floats |= asked[0].kind == "all_reduce" and asked[0].data[0].is_floating_point()


def exchange(asked: Sequence[Exchange]) -> tuple[list[list[Tensor]], int]:
    """What each rank gets, and the bytes all ranks send, those of the runtime's question for sizes too."""
    world_size, kind = len(asked), asked[0].kind
    kinds = sorted({e.kind for e in asked})
    require(len(kinds) == 1, f"ranks asked for different collectives: {', '.join(kinds)}")
    if kind == "all_reduce":
        total = asked[0].data[0].clone()
        for other in asked[1:]:
            ours, theirs = (total.shape, total.dtype), (other.data[0].shape, other.data[0].dtype)
            require(ours == theirs, f"ranks asked for sums of {ours} and {theirs}")
            total = total + other.data[0] if other.op == "sum" else torch.maximum(total, other.data[0])
        return [[total.clone()] for _ in asked], 2 * (world_size - 1) * total.nbytes
    _require_payloads(asked)
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


def _require_payloads(asked: Sequence[Exchange]) -> None:
    for e in asked:
        for payload in e.data:
            if payload.dtype != torch.uint8 or payload.dim() != 1:
                raise LawBroken(
                    f"a payload is a 1-D uint8 tensor; {e.kind} was given {payload.dim()}-D {payload.dtype}"
                )
    known = {e.sizes is not None for e in asked}
    require(len(known) == 1, "some ranks know the sizes of payloads, others ask for them")


def _require_sizes(asked: Sequence[Exchange], received: Sequence[Sequence[Tensor]]) -> None:
    for e, payloads in zip(asked, received, strict=True):
        sizes = [len(p) for p in payloads]
        if e.sizes is not None and list(e.sizes) != sizes:
            raise LawBroken(f"payloads of {list(e.sizes)} bytes were announced, {sizes} were sent")


def reductions(
    compressors: Sequence[Compressor],
    tensors: Sequence[Tensor],
    layout: Layout,
    route: Route,
    *,
    step: int = 0,
    seed: int = 0,
) -> tuple[list[Tensor], list[Tensor], Tally]:
    """(mean of each rank, error of each rank, what it took)."""
    world_size = len(compressors)
    means = [torch.full((layout.numel,), torch.nan, device=t.device) for t in tensors]
    errors = [torch.full((layout.numel,), torch.nan, device=t.device) for t in tensors]
    rounds = [
        c.rounds(t, context, out=mean, error=error)
        for c, t, context, mean, error in zip(
            compressors, tensors, contexts(layout, route, world_size, step=step, seed=seed), means, errors, strict=True
        )
    ]
    return means, errors, tallied(rounds)
