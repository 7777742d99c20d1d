"""Steps of a case, as laws take them: from its first one, by ranks that went through those before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Exchange, Layout, Rounds
from testbed.worker.laws.cases.lockstep import Tally, contexts, exchange, reductions
from testbed.worker.laws.cases.registry import LAYOUT, Case, gradients

_Rank = TypeVar("_Rank", bound=Compressor)
EARLIER = 100
"""Seeds of gradients of earlier steps, so that no law sees them again."""


def ranks_of(case: Case, world_size: int, *layouts: Layout) -> list[Compressor]:
    """Fresh ones, but that they went through the steps before the first one, in buckets of these layouts."""
    return wrapped_ranks(case, world_size, lambda inner: inner, *layouts)


def wrapped_ranks(case: Case, world_size: int, wrap: Callable[[Compressor], _Rank], *layouts: Layout) -> list[_Rank]:
    ranks = [wrap(case.make()) for _ in range(world_size)]
    for step in range(case.first_step):
        for layout in layouts or (LAYOUT,):
            given = gradients(layout, world_size, seed=EARLIER + step)
            reductions(ranks, given, layout, case.route, step=step)
    return ranks


def contexts_of(case: Case, layout: Layout, world_size: int, *, step: int = 0) -> list[Context]:
    """Of its route; `step` counts from its first one."""
    return contexts(layout, case.route, world_size, step=case.first_step + step)


def take_step(
    case: Case,
    ranks: Sequence[Compressor],
    tensors: Sequence[Tensor],
    layout: Layout = LAYOUT,
    *,
    step: int = 0,
    seed: int = 0,
) -> tuple[list[Tensor], list[Tensor], Tally]:
    """(mean of each rank, error of each rank, what it took); `step` counts from the case's first one."""
    return reductions(ranks, tensors, layout, case.route, step=case.first_step + step, seed=seed)


def noted(rounds: Sequence[Rounds]) -> list[list[list[Tensor]]]:
    """Run one reduction on all ranks to its end: what came of each exchange, for each rank."""
    found: list[list[list[Tensor]]] = []
    results: Sequence[list[Tensor] | None] = [None] * len(rounds)
    while asked := [one for r, got in zip(rounds, results, strict=True) if (one := resumed(r, got)) is not None]:
        results, _ = exchange(asked)
        found.append([[tensor.clone() for tensor in got] for got in results if got is not None])
    return found


def resumed(rounds: Rounds, got: list[Tensor] | None) -> Exchange | None:
    """What it asks for next, None at its end."""
    with torch.no_grad():
        try:
            return next(rounds) if got is None else rounds.send(got)
        except StopIteration:
            return None


def sums_in(case: Case, steps: int) -> torch.dtype:
    """The coarsest in which it has floats summed, at least float32's."""
    ranks = ranks_of(case, 2)
    found = [torch.float32]
    for step in range(steps):
        parts = zip(ranks, gradients(LAYOUT, 2, seed=step), contexts_of(case, LAYOUT, 2, step=step), strict=True)
        for first, *_ in noted([rank.rounds(tensor, context, out=tensor) for rank, tensor, context in parts]):
            if len(first) == 1 and first[0].is_floating_point():  # payloads come from two
                found.append(first[0].dtype)
    return max(found, key=lambda dtype: torch.finfo(dtype).eps)
