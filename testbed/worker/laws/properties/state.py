"""Laws of state: what a compressor keeps survives a checkpoint and other buckets."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Layout
from compressors.base.feedback import EF21, ErrorFeedback, MomentumFeedback
from testbed.worker.laws.cases.registry import (
    LAYOUT,
    Case,
    LawBroken,
    gradients,
    law,
    require,
    require_equal,
)
from testbed.worker.laws.cases.steps import ranks_of, take_step, wrapped_ranks

NAMES = ("stem", "bias", "wide", "head", "last")
SHAPES = dict(zip(NAMES, LAYOUT.shapes, strict=True))


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """Through a checkpoint and back.

    Raises:
        LawBroken: `torch.load(weights_only=True)` does not read it.
    """
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    try:
        loaded: dict[str, Any] = torch.load(file, weights_only=True)
    except Exception as error:
        raise LawBroken(
            f"torch.load(weights_only=True) does not read its state: {str(error).splitlines()[0]}"
        ) from error
    return loaded


def wraps(case: Case) -> list[tuple[str, Callable[[Compressor], Compressor]]]:
    """Alone, and in each feedback that it may have."""
    found: list[tuple[str, Callable[[Compressor], Compressor]]] = [("", lambda inner: inner), ("plain", ErrorFeedback)]
    if case.traits.averages and case.traits.contraction is not None:
        found.append(("ef21", EF21))
    if case.build().default_feedback == "momentum":
        found.append(("momentum", lambda inner: MomentumFeedback(inner, 0.9)))
    return found


@law("resume", "A run resumed from a checkpoint in the middle goes on with the same bits.", per_route=True)
def resume(case: Case) -> None:
    for word, wrap in wraps(case):
        first = wrapped_ranks(case, 2, wrap)
        for step in range(2):
            _next(case, first, step)
        states = [saved(rank.state_dict()) for rank in first]
        live = [rank.state_dict() for rank in first]
        expected = [_next(case, first, step) for step in (2, 3)]
        for kept, source in ((states, "a checkpoint"), (live, "a state taken while it went on")):
            what = f"{source} with {word or 'no'} feedback"
            resumed = [wrap(case.make()) for _ in range(2)]
            for rank, state in zip(resumed, kept, strict=True):
                rank.load_state_dict(state)
            for step, (mean, sent) in zip((2, 3), expected, strict=True):
                found, sent_again = _next(case, resumed, step)
                require_equal(found, mean, f"step {step} from {what}")
                require(sent_again == sent, f"step {step} from {what}: sent {sent_again} bytes, before {sent}")


def _next(case: Case, ranks: list[Compressor], step: int) -> tuple[Tensor, int]:
    means, _, tally = take_step(case, ranks, gradients(LAYOUT, len(ranks), seed=step), step=step)
    return means[0], tally.sent_bytes


@law("beginning", "An empty state is that of the beginning.", per_route=True)
def beginning(case: Case) -> None:
    expected, sent = _next(case, [case.make() for _ in range(2)], 0)
    ranks = ranks_of(case, 2)
    for step in range(2):
        _next(case, ranks, step)
    for rank in ranks:
        rank.load_state_dict({})
    found, sent_again = _next(case, ranks, 0)
    require_equal(found, expected, "after load_state_dict({})")
    require(sent == sent_again, f"sent {sent_again} bytes after load_state_dict({{}}), at first {sent}")


def _layouts(*buckets: tuple[str, ...]) -> list[Layout]:
    return [Layout(tuple(SHAPES[name] for name in names), index, names) for index, names in enumerate(buckets)]


@law(
    "other-buckets",
    "What feedback keeps follows its parameters into other buckets, and the next reduction works.",
    per_route=True,
)
def other_buckets(case: Case) -> None:
    old = _layouts(("stem", "bias", "wide"), ("head", "last"))
    new = _layouts(("last",), ("wide", "head"), ("bias", "stem"))
    for word, wrap in wraps(case):
        ranks = wrapped_ranks(case, 2, wrap, *old)
        for step in range(2):
            for layout in old:
                take_step(case, ranks, gradients(layout, 2, seed=step), layout, step=step)
        moved = [wrap(case.make()) for _ in range(2)]
        for before, after in zip(ranks, moved, strict=True):
            after.load_state_dict(saved(after.move_state(saved(before.state_dict()), old, new)))
            if word:
                _require_moved(before.state_dict(), after.state_dict(), old, new, word)
        for layout in new:
            means, _, _ = take_step(case, moved, gradients(layout, 2, seed=2), layout, step=2)
            require_equal(means[1], means[0], f"bucket {layout.bucket}, after the move")


def _require_moved(
    before: dict[str, Any], after: dict[str, Any], old: list[Layout], new: list[Layout], word: str
) -> None:
    for memory in before.keys() - {"inner"}:
        kept, found = _by_name(before[memory], old, memory), _by_name(after[memory], new, memory)
        for name, tensor in kept.items():
            require_equal(found[name], tensor, f"{word}: {memory} of parameter {name}")


def _by_name(memory: dict[str, Tensor], layouts: list[Layout], what: str) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for layout in layouts:
        tensor = memory.get(f"{layout.bucket}/0/")
        if tensor is None:
            raise LawBroken(f"bucket {layout.bucket} has no {what}")
        found.update(zip(layout.names, tensor.split(layout.numels), strict=True))
    return found
