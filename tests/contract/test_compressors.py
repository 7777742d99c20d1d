"""The laws every compressor obeys, whatever it does to a gradient. A new one is held to them by its configuration."""

from __future__ import annotations

import pytest
import torch

from compressors.base import Layout, Route
from compressors.feedback import ErrorFeedback
from compressors.payload import NonFiniteError
from tests.contract.catalogue import CASES, CONF, LAYOUT, NAMES, gradients, make, rounding
from tests.contract.lockstep import contexts, drive, reduce_all

ONE_ROUND = [name for name in NAMES if make(name).traits.rounds == 1]
CODECS = [(name, route) for name, route in CASES if name in ONE_ROUND]


def test_every_compressor_file_has_a_configuration() -> None:
    files = {path.stem for path in (CONF.parents[2] / "compressors").glob("*.py")}
    assert files - {"__init__", "base", "feedback", "payload"} == set(NAMES)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize(("name", "route"), CASES)
def test_every_rank_gets_the_same_mean_and_the_bytes_are_those_declared(
    name: str, route: Route, world_size: int
) -> None:
    compressors = [make(name) for _ in range(world_size)]
    means, _, sent = reduce_all(compressors, gradients(LAYOUT, world_size), LAYOUT, route)
    for mean in means:
        assert torch.equal(mean, means[0])
        assert mean.isfinite().all()
    if compressors[0].traits.fixed_size:
        assert sent == compressors[0].sent_bytes(LAYOUT, world_size, route)
    if world_size > 1:
        assert sent > 0


@pytest.mark.parametrize("world_size", [1, 3, 4])
@pytest.mark.parametrize(("name", "route"), CASES)
def test_the_mean_of_what_ranks_contributed_is_the_mean(name: str, route: Route, world_size: int) -> None:
    compressors = [make(name) for _ in range(world_size)]
    tensors = gradients(LAYOUT, world_size)
    means, errors, _ = reduce_all(compressors, tensors, LAYOUT, route)
    contributed = torch.stack([t.double() - e.double() for t, e in zip(tensors, errors, strict=True)]).mean(dim=0)
    largest = max(float(t.abs().max()) for t in tensors)
    assert torch.allclose(means[0].double(), contributed, rtol=0, atol=rounding(compressors[0]) * largest)


@pytest.mark.parametrize(("name", "route"), CASES)
def test_feedback_loses_nothing(name: str, route: Route) -> None:
    world_size, steps = 4, 6
    ranks = [ErrorFeedback(make(name)) for _ in range(world_size)]
    given = torch.zeros(LAYOUT.numel, dtype=torch.float64)
    applied = torch.zeros(LAYOUT.numel, dtype=torch.float64)
    for step in range(steps):
        tensors = gradients(LAYOUT, world_size, seed=step)
        given += torch.stack(tensors).double().mean(dim=0)
        means, _, _ = reduce_all(ranks, tensors, LAYOUT, route, step=step)
        applied += means[0].double()
    residuals = [rank.residual(LAYOUT.bucket) for rank in ranks]
    kept = torch.stack([r for r in residuals if r is not None]).double().mean(dim=0)
    largest = float(given.abs().max())
    # Sums of ranks taken in half precision are rounded where no residual sees it.
    tolerance = 1e-6 if ranks[0].traits.reduce_dtype != torch.float16 else rounding(ranks[0])
    assert torch.allclose(applied + kept, given, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize(("name", "route"), CASES)
def test_the_state_makes_a_resumed_run_the_same(name: str, route: Route) -> None:
    def fresh() -> list[ErrorFeedback]:
        return [ErrorFeedback(make(name)) for _ in range(2)]

    straight, first = fresh(), fresh()
    for step in range(3):
        tensors = gradients(LAYOUT, 2, seed=step)
        expected, _, sent = reduce_all(straight, tensors, LAYOUT, route, step=step)
        if step < 2:
            reduce_all(first, tensors, LAYOUT, route, step=step)
    resumed = fresh()
    for before, after in zip(first, resumed, strict=True):
        after.load_state_dict(before.state_dict())
    reduce_all(first, gradients(LAYOUT, 2, seed=9), LAYOUT, route, step=2)  # a saved state is a copy
    found, _, sent_again = reduce_all(resumed, gradients(LAYOUT, 2, seed=2), LAYOUT, route, step=2)
    assert torch.equal(found[0], expected[0])
    assert sent_again == sent


@pytest.mark.parametrize(("name", "route"), CASES)
def test_the_global_generator_plays_no_part(name: str, route: Route) -> None:
    means = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found, _, _ = reduce_all([make(name), make(name)], gradients(LAYOUT, 2), LAYOUT, route)
        assert torch.equal(torch.get_rng_state(), before)
        means.append(found[0])
    assert torch.equal(means[0], means[1])


@pytest.mark.parametrize(("name", "route"), CASES)
def test_the_mean_may_be_written_over_the_input(name: str, route: Route) -> None:
    tensors = gradients(LAYOUT, 4)
    apart, _, _ = reduce_all([make(name) for _ in range(4)], tensors, LAYOUT, route)
    ranks = zip([make(name) for _ in range(4)], tensors, contexts(LAYOUT, route, 4), strict=True)
    drive([c.rounds(t, context, out=t) for c, t, context in ranks])
    assert torch.equal(tensors[0], apart[0])


@pytest.mark.parametrize(("name", "route"), CASES)
@pytest.mark.parametrize("shapes", [((5,),), ((257,),), ((8, 8),), ((1, 6),), ((64, 64), (3,))])
def test_zeros_stay_zeros_at_any_size(name: str, route: Route, shapes: tuple[tuple[int, ...], ...]) -> None:
    layout = Layout(shapes)
    zeros = [torch.zeros(layout.numel) for _ in range(4)]
    ranks = [make(name) for _ in range(4)]
    for step in range(2):
        means, errors, _ = reduce_all(ranks, zeros, layout, route, step=step)
        assert not means[0].any()
        assert not errors[0].any()
    # and a state made from zeros does not keep later gradients out
    for step in range(2, 4):
        means, _, _ = reduce_all(ranks, gradients(layout, 4), layout, route, step=step)
    assert means[0].any()


@pytest.mark.parametrize("name", NAMES)
def test_one_element_arrives(name: str) -> None:
    layout, route = Layout(((1,),)), Route.REDUCE_SUM if make(name).traits.linear else Route.GATHER
    means, _, _ = reduce_all([make(name, feedback="off") for _ in range(2)], [torch.tensor([2.0])] * 2, layout, route)
    assert means[0] == pytest.approx(2.0, rel=1e-2)


@pytest.mark.parametrize(("name", "route"), CASES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows_or_is_refused_by_name(name: str, route: Route, bad: float) -> None:
    tensors = gradients(LAYOUT, 2)
    tensors[0][-1500] = bad
    try:
        means, _, _ = reduce_all([make(name), make(name)], tensors, LAYOUT, route)
    except NonFiniteError:
        return
    assert torch.equal(means[0].isfinite(), means[1].isfinite())
    saturates = name == "fp16" and bad == float("inf")
    assert saturates or not means[0].isfinite().all()


@pytest.mark.parametrize("name", ONE_ROUND)
@pytest.mark.parametrize("numel", [2, 255, 256, 257, 4096])
def test_a_payload_does_not_depend_on_the_stride_and_is_no_view(name: str, numel: int) -> None:
    codec, layout = make(name), Layout(((numel,),))
    context = contexts(layout, Route.GATHER, 1)[0]
    dense = gradients(layout, 1)[0]
    spread = torch.stack([dense, -dense], dim=1)[:, 0]
    assert not spread.is_contiguous()
    payload = codec.encode(dense, context)
    kept = dense.clone()
    assert payload.dtype == torch.uint8 and payload.dim() == 1
    assert torch.equal(codec.encode(spread, context), payload)
    if codec.traits.fixed_size:
        assert len(payload) == codec.payload_bytes(layout)
    payload.zero_()
    assert torch.equal(dense, kept)


@pytest.mark.parametrize("name", ONE_ROUND)
def test_decode_adds_and_scales(name: str) -> None:
    codec = make(name)
    tensor = gradients(LAYOUT, 1)[0]
    payload = codec.encode(tensor, contexts(LAYOUT, Route.GATHER, 1)[0])
    plain, scaled, added = torch.full_like(tensor, 7), torch.full_like(tensor, 7), torch.ones_like(tensor)
    codec.decode(payload, plain)
    codec.decode(payload, scaled, scale=0.5)
    codec.decode(payload, added, add=True, scale=-2.0)
    assert torch.allclose(scaled, plain * 0.5)
    assert torch.allclose(added, 1 - 2 * plain, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in ONE_ROUND if make(name).traits.linear])
def test_linear_payloads_may_be_summed(name: str) -> None:
    codec = make(name)
    dtype = codec.traits.reduce_dtype
    assert dtype is not None
    tensors = gradients(LAYOUT, 2)
    one, other = (codec.encode(t, c) for t, c in zip(tensors, contexts(LAYOUT, Route.REDUCE_SUM, 2), strict=True))
    total, apart = torch.zeros(LAYOUT.numel), torch.zeros(LAYOUT.numel)
    codec.decode((one.view(dtype) + other.view(dtype)).view(torch.uint8), total)
    codec.decode(one, apart, add=True)
    codec.decode(other, apart, add=True)
    assert torch.allclose(total, apart, atol=rounding(codec) * float(apart.abs().max()))


@pytest.mark.parametrize("name", NAMES)
def test_feedback_follows_the_traits_unless_told(name: str) -> None:
    wanted = make(name).traits.feedback in ("required", "recommended")
    assert make(name).uses_feedback is wanted
    assert make(name, feedback="on").uses_feedback
    assert not make(name, feedback="off").uses_feedback
    with pytest.raises(ValueError, match=r"^feedback=perhaps: unknown; known: auto, on, off$"):
        make(name, feedback="perhaps")


@pytest.mark.parametrize("name", NAMES)
def test_traits_agree_with_one_another(name: str) -> None:
    traits = make(name).traits
    assert traits.linear == (traits.reduce_dtype is not None)
    assert traits.rounds >= 1
    if traits.contraction is not None:
        assert 0 < traits.contraction <= 1
