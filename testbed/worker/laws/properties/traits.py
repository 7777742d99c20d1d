"""Laws of traits: each is measured, and what is found must be what is declared, both ways where that can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from compressors.base.compressor import Compressor, Layout
from compressors.base.payload import PointToPointError
from compressors.base.wrapper import Wrapper
from testbed.worker.laws.cases.lockstep import contexts
from testbed.worker.laws.cases.registry import LAYOUT, Case, LawBroken, gradients, law, require, require_close
from testbed.worker.laws.cases.steps import ranks_of, take_step

SMALL = Layout(((30, 40), (7,)))
DRAWS = 400
"""Seeds over which the mean of what is decoded is taken."""
LARGEST_GROUP = 300
"""Ranks that are tried at once, where more are declared."""


@law("sum", "A sum of payloads decodes to the sum of what they carry.", "summed", "point_to_point")
def sum_decodes_to_sum(case: Case) -> None:
    codec, dtype, (ours, theirs) = case.make(), case.traits.sum_dtype, contexts(LAYOUT, case.route, 2)
    assert dtype is not None
    tensors = gradients(LAYOUT, 2)
    one, other = codec.encode(tensors[0], ours), case.make().encode(tensors[1], theirs)
    total, apart = torch.zeros(LAYOUT.numel), torch.zeros(LAYOUT.numel)
    codec.decode((one.view(dtype) + other.view(dtype)).view(torch.uint8), total, ours)
    codec.decode(one, apart, ours, add=True)
    codec.decode(other, apart, theirs, add=True)
    scale = torch.stack([total.abs(), *(t.abs() for t in tensors)]).amax(dim=0)
    require_close(total, apart, scale, LAYOUT, case.precision, "of two payloads")


@law(
    "headroom",
    "Sums over as many ranks as are declared do not overflow; floats that hold no such mean become infinity.",
    "counted",
)
def headroom(case: Case) -> None:
    layout, most = Layout(((64,),)), case.traits.max_world
    signs = torch.cat([torch.ones(32), -torch.ones(32)])
    worlds = {1, 2, 3, 4, 7, 8, 16, most or 64}
    largest = torch.finfo(case.precision).max
    for world_size in sorted(w for w in worlds if w <= min(most or LARGEST_GROUP, LARGEST_GROUP)):
        ranks = ranks_of(case, world_size, layout)
        for step, magnitude in enumerate((1.0, 1.0, min(1e30, largest / 2), 1e30)):
            tensor, what = magnitude * signs, f"{world_size} ranks, values of {magnitude:g}"
            means, errors, _ = take_step(case, ranks, [tensor] * world_size, layout, step=step)
            if magnitude > largest and torch.equal(means[0], math.inf * signs):
                continue
            require(means[0].isfinite().all(), f"{what}: {int((~means[0].isfinite()).sum())} are not finite")
            if not case.traits.averages:
                continue
            kept = torch.stack([error.double() for error in errors])
            off = float((means[0].double() + kept.mean(dim=0) - tensor).abs().max())
            allowed = 8 * world_size * torch.finfo(case.precision).eps * max(magnitude, float(kept.abs().max()))
            require(off <= allowed, f"{what}: mean and what is left are {off:g} off, where {allowed:g} is rounding")
            right = means[0].any() and (means[0] * signs >= 0).all()
            require(right or case.traits.sum_dtype is None, f"{what}: signs have changed")


@law("unbiased", "What comes out is right on average over seeds, if and only if that is declared.")
def unbiased(case: Case) -> None:
    tensor = gradients(Layout((SMALL.shapes[0],)), 1)[0]
    tensor = torch.cat([tensor, tensor[:7]])
    drawn = _draws(lambda seed: take_step(case, [case.make()], [tensor], SMALL, seed=seed)[0][0], DRAWS)
    if torch.equal(drawn, tensor.double().expand_as(drawn)):
        return  # so small a tensor may be sent as it is, which says nothing of larger ones
    off = (drawn.mean(dim=0) - tensor.double()).abs()
    spread = drawn.std(dim=0) if len(drawn) > 1 else torch.zeros_like(off)
    # What is rounded up once in thousands of draws may never have been: then the others tell what chance does.
    spread = spread.clamp(min=spread.square().mean().sqrt())
    noise = 6 * spread / len(drawn) ** 0.5 + 2 * torch.finfo(torch.float32).eps * tensor.abs()
    worst = int((off - noise).argmax())
    found = f"{float(off[worst]):.3g} off on average of {float(tensor[worst]):.3g}, {float(noise[worst]):.3g} is chance"
    require(case.traits.unbiased == bool((off <= noise).all()), f"unbiased={case.traits.unbiased}: {found}")


def _draws(draw: Callable[[int], Tensor], count: int) -> Tensor:
    """(draws, numel) float64; a single one where the seed plays no part."""
    first = [draw(seed).double() for seed in range(max(4, count // 16))]
    if all(torch.equal(one, first[0]) for one in first[1:]):
        return first[0][None]
    return torch.stack([*first, *(draw(seed).double() for seed in range(len(first), count))])


def hard_vectors(numel: int) -> Iterator[tuple[str, Tensor]]:
    """What is easy for one method is hard for another."""
    generator = torch.Generator().manual_seed(3)
    normal = torch.randn(numel, generator=generator)
    yield "normal", normal
    yield "heavy-tailed", normal.pow(5)
    yield "one-hot", torch.eye(1, numel)[0].roll(numel // 3) * -3.0
    yield "constant", torch.full((numel,), 0.3)
    yield "alternating", torch.ones(numel).cumsum(0).remainder(2).sub(0.5)
    yield "sparse", torch.where(torch.rand(numel, generator=generator) < 0.02, normal, torch.zeros(()))
    yield "small", 1e-12 * normal
    yield "one large", torch.cat([torch.tensor([1e4]), normal[1:]])


@law("contraction", "|x - C(x)|^2 <= (1 - d) |x|^2 in expectation over seeds, with the d declared.", "contraction")
def contraction(case: Case) -> None:
    for layout in (Layout(((40, 30),)), Layout(((7,),))):
        for name, x in hard_vectors(layout.numel):
            if not x.any():
                continue
            # What is sent by rare chance alone needs many draws; most need few.
            if (found := _lost_too_much(case, x, layout, 64)) and (found := _lost_too_much(case, x, layout, 2048)):
                raise LawBroken(f"{name}, {layout.numel} elements: {found}")


def _lost_too_much(case: Case, x: Tensor, layout: Layout, draws: int) -> str:
    """What is lost, if it is more than is declared; empty if not."""
    declared = case.traits.contraction
    assert declared is not None
    drawn = _draws(lambda seed: _once(case, x, layout, seed), draws)
    lost = (drawn - x.double()).square().sum(dim=1) / x.double().square().sum()
    mean = float(lost.mean())
    chance = 5 * float(lost.std()) / len(lost) ** 0.5 if len(lost) > 1 else 0.0
    if declared == 1 and lost.any():
        return f"loses {mean:.6g} of its energy, and was declared lossless"
    allowed = 1 - declared + chance + 1e-6
    return f"loses {mean:.6g} of its energy, declared {1 - declared:.6g} at most" if mean > allowed else ""


@law("lossless", "What loses nothing says so.", "averages")
def lossless(case: Case) -> None:
    layout = Layout(((100, 120),))  # what is small may be sent as it is
    losses = [bool((_once(case, x, layout, 0) != x).any()) for _, x in hard_vectors(layout.numel)]
    require(any(losses) or case.traits.contraction == 1, f"nothing was lost, contraction={case.traits.contraction}")


def _once(case: Case, x: Tensor, layout: Layout, seed: int) -> Tensor:
    codec = case.make()
    if not codec.traits.point_to_point:
        return x - take_step(case, [codec], [x], layout, seed=seed)[1][0]
    context, out = contexts(layout, None, 1, seed=seed)[0], torch.empty(layout.numel)
    codec.decode(codec.encode(x, context), out, context)
    return out


@law("sizes", "Sizes of payloads are fixed, and known beforehand, if and only if that is declared.", "point_to_point")
def sizes(case: Case) -> None:
    codec, context = case.make(), contexts(LAYOUT, None, 1)[0]
    tensors = [torch.zeros(LAYOUT.numel), *gradients(LAYOUT, 2)]
    found = sorted({len(codec.encode(t, context)) for t in tensors})
    require(case.traits.fixed_size == (len(found) == 1), f"fixed_size={case.traits.fixed_size}: sizes {found}")
    declared = codec.payload_bytes(LAYOUT, context)
    require(not case.traits.fixed_size or found == [declared], f"payloads of {found} bytes, declared {declared}")
    require(declared > 0, f"{declared} bytes are planned for {LAYOUT.numel} elements")


@law("declared", "What is declared is what is written.")
def declared_is_written(case: Case) -> None:
    codec, traits = case.make(), case.traits
    kind, passes_on = type(codec), isinstance(codec, Wrapper)
    for method in ("rounds", "sent_bytes"):
        overridden = getattr(kind, method) is not getattr(Compressor, method)
        right = overridden if traits.own_rounds else (not overridden or passes_on)
        require(right, f"own_rounds={traits.own_rounds}, and `{method}` is {'' if overridden else 'not '}its own")
    for method in ("encode", "decode"):
        overridden = getattr(kind, method) is not getattr(Compressor, method)
        right = overridden or not traits.point_to_point
        require(right, f"point_to_point=True, and `{method}` is missing")
    # without a meaning where there is nothing to cut or to sum
    where = f"own_rounds={traits.own_rounds}, sum_dtype={traits.sum_dtype}"
    require(
        traits.chunkable or not (traits.own_rounds or traits.sum_dtype), f"chunkable=False has no meaning with {where}"
    )
    require(traits.max_world is None or traits.own_rounds or traits.sum_dtype, f"max_world has no meaning with {where}")


@law("names-itself", "Without payloads of its own it says so by its name.", "collective")
def names_itself(case: Case) -> None:
    codec, context = case.make(), contexts(LAYOUT, None, 1)[0]
    tensor = torch.zeros(LAYOUT.numel)
    for call in (
        lambda: codec.encode(tensor, context),
        lambda: codec.decode(torch.zeros(4, dtype=torch.uint8), tensor, context),
    ):
        try:
            call()
        except PointToPointError as error:
            require("has no payload of its own" in str(error), f"says: {error}")
        else:
            raise LawBroken("works point to point, though it says it does not")


@law("no-more-than-given", "Only what owns momentum or keeps its own residuals sends something for zeros.")
def no_more_than_given(case: Case) -> None:
    codec = case.make()
    take_step(case, [codec], gradients(LAYOUT, 1), step=0)
    means, _, _ = take_step(case, [codec], [torch.zeros(LAYOUT.numel)], step=1)
    sent, traits = bool(means[0].any()), case.traits
    found = f"owns={traits.owns}, feedback={traits.feedback}: {'something' if sent else 'nothing'} came of zeros"
    require(not sent or traits.owns != "nothing" or traits.feedback == "builtin", found)


@law("owns", "Of the optimizer it takes over what it declares, and refuses by ValueError what it cannot.")
def owns(case: Case) -> None:
    parameters = list(nn.Linear(3, 2).parameters())
    sgd = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    adopted = case.make().adopt(sgd)
    kept = [p for group in adopted.param_groups for p in group["params"]]
    require([id(p) for p in kept] == [id(p) for p in parameters], "the optimizer has other parameters")
    if case.traits.owns != "optimizer":
        require(adopted is sgd, f"owns={case.traits.owns}, and the optimizer is another")
    momentum = float(sgd.param_groups[0]["momentum"])
    if case.traits.owns != "optimizer":
        wanted = 0.0 if case.traits.owns == "momentum" else 0.9
        require(momentum == wanted, f"owns={case.traits.owns}, and the optimizer has momentum {momentum:g}")
    adam = torch.optim.Adam(parameters, lr=0.1)
    try:
        adopted = case.make().adopt(adam)
    except ValueError:
        require(case.traits.owns != "nothing", "owns nothing, and refuses Adam")
        return
    require(case.traits.owns != "momentum", "owns the momentum, and takes Adam, which has moments of its own")
