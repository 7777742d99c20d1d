"""Laws of state: what a compressor keeps survives a checkpoint, another group, other buckets."""

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
    require_close,
    require_equal,
)
from testbed.worker.laws.cases.steps import ranks_of, take_step, wrapped_ranks
from testbed.worker.laws.properties.feedback import Account

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
    if case.build().usual_feedback == "momentum":
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


@law("other-world", "A group of another size goes on: what was owed stays owed.", "averages", per_route=True)
def other_world(case: Case) -> None:
    for before, after in ((2, 3), (4, 2)):
        account = Account()
        old = wrapped_ranks(case, before, ErrorFeedback)
        for step in range(3):
            account.step(case, old, step)
        states = [saved(rank.state_dict()) for rank in old]
        new = [ErrorFeedback(case.make()) for _ in range(after)]
        for rank in new:
            rank.load_state_dict(saved(rank.merge_states(states)))
        account.settle(case, new, f"{before} -> {after} ranks")
        for step in range(3, 5):
            account.step(case, new, step)
        account.settle(case, new, f"two steps after {before} -> {after} ranks")


@law(
    "other-world-alone",
    "Without plain feedback too, a group of another size goes on from merged states.",
    per_route=True,
)
def other_world_alone(case: Case) -> None:
    for word, wrap in wraps(case):
        if wrap is ErrorFeedback:
            continue
        old = wrapped_ranks(case, 2, wrap)
        for step in range(2):
            _next(case, old, step)
        states = [saved(rank.state_dict()) for rank in old]
        new = [wrap(case.make()) for _ in range(3)]
        for rank in new:
            rank.load_state_dict(saved(rank.merge_states(states)))
            if word:
                _require_mean(states, rank.state_dict(), word)
        tensors = gradients(LAYOUT, 3, seed=2)
        means, errors, _ = take_step(case, new, tensors, step=2)
        require(means[0].isfinite().all(), "the next mean is not finite")
        for mean in means:
            require_equal(mean, means[0], "ranks of the new group")
        if wrap is EF21:
            estimates = torch.stack([t.double() - e.double() for t, e in zip(tensors, errors, strict=True)])
            scale = 3 * torch.stack([t.abs() for t in [*tensors, *errors]]).amax(dim=0)
            require_close(means[0], estimates.mean(dim=0), scale, LAYOUT, case.precision, "ef21, after 2 -> 3 ranks")


def _require_mean(states: list[dict[str, Any]], state: dict[str, Any], word: str) -> None:
    """What feedback keeps in memories of its own is, on each rank of a new group, the mean of what the old ones had."""
    for memory in states[0].keys() - {"inner"}:
        for key in states[0][memory]:
            expected = torch.stack([old[memory][key].double() for old in states]).mean(dim=0)
            require(key in state[memory], f"{word}: nothing is left of {memory}")
            off = float((state[memory][key].double() - expected).abs().max())
            require(
                off <= 1e-6 * float(expected.abs().max()), f"{word}: {memory} of a new rank are {off:g} off the mean"
            )


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
