"""Laws of one reduction: what comes out, on whom, and at what cost."""

from __future__ import annotations

import math

import torch

from compressors.base.compressor import Layout
from testbed.worker.laws.cases.lockstep import drive
from testbed.worker.laws.cases.registry import LAYOUT, Case, gradients, law, require, require_close, require_equal
from testbed.worker.laws.cases.steps import contexts_of, ranks_of, take_step

ZERO_SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (((5,),), ((257,),), ((8, 8),), ((1, 6),), ((64, 64), (3,)))


@law("same-mean", "Every rank gets the same finite mean.", per_route=True)
def same_mean(case: Case) -> None:
    for world_size in (1, 2, 3, 4):
        means, _, _ = take_step(case, ranks_of(case, world_size), gradients(LAYOUT, world_size))
        for rank, mean in enumerate(means):
            require_equal(mean, means[0], f"rank {rank} of {world_size} beside rank 0")
            require(mean.isfinite().all(), f"{world_size} ranks: {int((~mean.isfinite()).sum())} are not finite")


@law("bytes", "Where the size is fixed, the bytes that all ranks send are those declared.", per_route=True)
def declared_bytes(case: Case) -> None:
    for world_size in (1, 2, 3, 4):
        ranks = ranks_of(case, world_size)
        for step in range(3):
            _, _, tally = take_step(case, ranks, gradients(LAYOUT, world_size, step), step=step)
            sent = tally.sent_bytes
            declared = ranks[0].sent_bytes(LAYOUT, world_size, case.route, step=case.first_step + step)
            if case.traits.fixed_size:
                require(sent == declared, f"{world_size} ranks, step {step}: sent {sent} bytes, declared {declared}")
            require(sent > 0 or world_size == 1 or declared == 0, f"{world_size} ranks sent nothing")


@law("rounds", "A step asks for as many exchanges as are declared, at most.", per_route=True)
def rounds(case: Case) -> None:
    most = case.traits.max_rounds
    require((most is not None) == case.traits.own_rounds, f"max_rounds={most} with own_rounds={case.traits.own_rounds}")
    for world_size in (2, 3, 4):
        ranks = ranks_of(case, world_size)
        allowed = ranks[0].traits.rounds_among(world_size)
        for step in range(3):
            _, _, tally = take_step(case, ranks, gradients(LAYOUT, world_size, step), step=step)
            asked = tally.exchanges
            require(asked <= allowed, f"{world_size} ranks, step {step}: {asked} exchanges, {allowed} are declared")


@law("mean", "The mean over ranks of what they contributed is what comes out.", "averages", per_route=True)
def mean_of_contributions(case: Case) -> None:
    for world_size in (1, 3, 4):
        tensors = gradients(LAYOUT, world_size)
        means, errors, _ = take_step(case, ranks_of(case, world_size), tensors)
        contributed = torch.stack([t.double() - e.double() for t, e in zip(tensors, errors, strict=True)]).mean(dim=0)
        # What one rank's part loses in a second encoding counts once for each rank.
        scale = world_size * torch.stack([*tensors, *errors]).abs().amax(dim=0)
        require_close(means[0], contributed, scale, LAYOUT, case.precision, f"{world_size} ranks")


@law("in-place", "The mean may be written over the input, and the error too.", per_route=True)
def in_place(case: Case) -> None:
    tensors = gradients(LAYOUT, 4)
    apart, errors, _ = take_step(case, ranks_of(case, 4), tensors)
    given = [t.clone() for t in tensors]
    parts = zip(ranks_of(case, 4), given, contexts_of(case, LAYOUT, 4), strict=True)
    drive([c.rounds(t, x, out=t) for c, t, x in parts])
    require_equal(given[0], apart[0], "a mean written over the input")
    given, outs = [t.clone() for t in tensors], [torch.empty_like(t) for t in tensors]
    ranks = zip(ranks_of(case, 4), given, outs, contexts_of(case, LAYOUT, 4), strict=True)
    drive([c.rounds(t, x, out=out, error=t) for c, t, out, x in ranks])
    require_equal(outs[0], apart[0], "a mean beside an error written over the input")
    for left, error in zip(given, errors, strict=True):
        require_equal(left, error, "an error written over the input")


@law("input-kept", "The input is left as it is.", per_route=True)
def input_kept(case: Case) -> None:
    tensors = gradients(LAYOUT, 2)
    given = [t.clone() for t in tensors]
    take_step(case, ranks_of(case, 2), given)
    for before, after in zip(tensors, given, strict=True):
        require_equal(after, before, "the input after a reduction")


@law("zeros", "Zeros stay zeros at any size, and keep no later gradient out.", per_route=True)
def zeros(case: Case) -> None:
    for layout in map(Layout, ZERO_SHAPES):
        given = [torch.zeros(layout.numel) for _ in range(4)]
        ranks, came = [case.make() for _ in given], False
        for step in range(-case.first_step, 2):
            means, errors, _ = take_step(case, ranks, given, layout, step=step)
            require(
                not means[0].any(), f"{layout.shapes}: the mean of zeros has {int(means[0].count_nonzero())} others"
            )
            require(
                not errors[0].any(), f"{layout.shapes}: the error of zeros has {int(errors[0].count_nonzero())} others"
            )
        for step in range(2, 4):
            means, _, _ = take_step(case, ranks, gradients(layout, 4), layout, step=step)
            came |= bool(means[0].any())
        require(came, f"{layout.shapes}: nothing comes through after two steps of zeros")


@law("one-element", "A bucket of one element arrives; where there is no mean, its sign does.")
def one_element(case: Case) -> None:
    layout = Layout(((1,),))
    means, _, _ = take_step(case, ranks_of(case, 2, layout), [torch.tensor([2.0])] * 2, layout)
    came = float(means[0])
    right = math.isclose(came, 2.0, rel_tol=1e-2) if case.traits.averages else came > 0
    require(right, f"of 2.0 on both ranks came {came:g}")


@law("empty", "A bucket of no elements is answered, or refused by a ValueError.", per_route=True)
def empty(case: Case) -> None:
    layout = Layout(((0,),))
    try:
        means, _, _ = take_step(case, ranks_of(case, 2, layout), [torch.empty(0)] * 2, layout)
    except ValueError:
        return
    require(means[0].shape == (0,), f"the mean has shape {tuple(means[0].shape)}")


@law(
    "strides", "A tensor that is not contiguous is reduced as one that is, or refused by a ValueError.", per_route=True
)
def strides(case: Case) -> None:
    dense = gradients(LAYOUT, 2)
    apart, _, _ = take_step(case, ranks_of(case, 2), dense)
    spread = [torch.stack([t, -t], dim=1)[:, 0] for t in dense]
    try:
        means, _, _ = take_step(case, ranks_of(case, 2), spread)
    except ValueError:
        return
    require_equal(means[0], apart[0], "the mean of tensors with stride 2")


@law("seeds", "The global generator plays no part; the same seed gives the same bits again.", per_route=True)
def seeds(case: Case) -> None:
    means = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        ranks = ranks_of(case, 2)
        for step in range(2):
            found, _, _ = take_step(case, ranks, gradients(LAYOUT, 2, step), step=step, seed=5)
        require(torch.equal(torch.get_rng_state(), before), "the global generator was drawn from")
        means.append(found[0])
    require_equal(means[1], means[0], "the same seed again, with another global one")
