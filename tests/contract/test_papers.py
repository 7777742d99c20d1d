"""What single compressors promise beyond the common laws."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from compressors.base.compressor import Layout, Route
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts, reduce_all

MATRIX = Layout(((40, 60),))


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_powersgd_finds_a_low_rank_mean_of_ranks_that_are_not_low_rank() -> None:
    mean = _random(0, 40, 2) @ _random(1, 2, 60)
    noise = _random(2, 40, 60)
    tensors = [(mean + noise).view(-1), (mean - noise).view(-1)]
    ranks = [make("powersgd", rank=2) for _ in tensors]
    # Only if both ranks start from the same random matrix does the noise cancel.
    means, _, _ = reduce_all(ranks, tensors, MATRIX, Route.OWN)
    assert torch.allclose(means[0], mean.view(-1), atol=1e-3)


def test_powersgd_comes_closer_to_the_best_matrix_of_its_rank_from_step_to_step() -> None:
    matrix = _random(0, 40, 60)
    u, s, v = torch.linalg.svd(matrix)
    best = float((matrix - u[:, :3] * s[:3] @ v[:3]).norm())
    rank = make("powersgd", rank=3)
    errors = []
    for step in range(40):
        means, _, _ = reduce_all([rank], [matrix.view(-1)], MATRIX, Route.OWN, step=step)
        errors.append(float((matrix.view(-1) - means[0]).norm()))
    assert errors[0] > 1.05 * best
    assert errors[-1] < 1.01 * best


def test_powersgd_recovers_from_a_gradient_of_zeros() -> None:
    rank = make("powersgd")
    reduce_all([rank], [torch.zeros(2400)], MATRIX, Route.OWN, step=0)
    means, _, _ = reduce_all([rank], [_random(0, 2400)], MATRIX, Route.OWN, step=1)
    assert means[0].any()


def _halves_mean(values: list[float]) -> float:
    tensors = [torch.tensor([value]) for value in values]
    means, _, _ = reduce_all([make("fp16")] * len(values), tensors, Layout(((1,),)), Route.REDUCE_SUM)
    return float(means[0])


@pytest.mark.parametrize("world_size", range(1, 17))
def test_fp16_carries_the_mean_of_what_halves_can_hold(world_size: int) -> None:
    for value in (65504.0, -65504.0, 40000.0, 1.0):
        assert _halves_mean([value] * world_size) == pytest.approx(value, rel=2**-11 * world_size)
    assert _halves_mean([65504.0] + [0.0] * (world_size - 1)) == pytest.approx(65504 / world_size, rel=2**-11)


@pytest.mark.parametrize("world_size", range(1, 17))
@pytest.mark.parametrize("value", [1e6, -1e6, math.inf, -math.inf])
def test_fp16_shows_what_halves_cannot_hold(world_size: int, value: float) -> None:
    assert _halves_mean([value] * world_size) == math.copysign(math.inf, value)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_on_one_rank_is_not_finite_in_the_mean(name: str, bad: float) -> None:
    layout = Layout(((2,),))
    tensors = [torch.tensor([1.0, 2.0]), torch.tensor([bad, 2.0]), torch.tensor([1.0, 2.0])]
    means, _, _ = reduce_all([make(name)] * 3, tensors, layout, Route.REDUCE_SUM)
    assert torch.equal(means[0].nan_to_num(nan=7.0), torch.tensor([bad, 2.0]).nan_to_num(nan=7.0))


def test_fp16_loses_no_bits_of_ordinary_values_by_dividing() -> None:
    """Its mean is, bit for bit, that of halves that were not divided, but for values near the end of their range."""
    tensors = [_random(rank, 4000).mul(10.0 ** torch.arange(-2, 2).repeat(1000)) for rank in range(4)]
    means, _, _ = reduce_all([make("fp16")] * 4, tensors, Layout(((4000,),)), Route.REDUCE_SUM)
    total = tensors[0].half()
    for tensor in tensors[1:]:
        total = total + tensor.half()
    small = torch.stack(tensors).abs().amin(dim=0) < 4 * 2.0**-14
    assert small.float().mean() < 0.1
    assert torch.equal(means[0][~small], total.float()[~small] / 4)


def test_fp16_is_not_divided_point_to_point() -> None:
    context = dataclasses.replace(contexts(Layout(((2,),)), None, 1)[0], world_size=8)
    values, out, codec = torch.tensor([65504.0, 2.0**-24]), torch.zeros(2), make("fp16")
    codec.decode(codec.encode(values, context), out, context)
    assert torch.equal(out, values)


@pytest.mark.parametrize("largest", [3.4028234663852886e38, 3.3e38, 1e-30, 1.5e-36, 1.4e-36, 1e-40])
def test_int8_keeps_its_word_at_both_ends_of_float32(largest: float) -> None:
    tensor = largest * torch.linspace(-1, 1, 256)
    means, errors, _ = reduce_all([make("int8")], [tensor], Layout(((256,),)), Route.GATHER)
    assert means[0].isfinite().all()
    if tensor.abs().max() < 1.49e-36:
        assert not means[0].any()
    else:
        assert float(errors[0].abs().max()) <= largest / 254 * 1.0001


def test_int8_sends_values_too_small_to_scale_as_zeros() -> None:
    layout = Layout(((300,),))
    tiny = torch.full((300,), 1e-38)
    tiny[256:] = 1.0
    means, errors, _ = reduce_all([make("int8")], [tiny], layout, Route.GATHER)
    assert not means[0][:256].any()
    assert torch.equal(errors[0][:256], tiny[:256])
    assert torch.allclose(means[0][256:], tiny[256:])


def test_sz3_is_smaller_where_its_bound_is_wider() -> None:
    layout = Layout(((50_000,),))
    tensor = _random(0, 50_000).pow(3)
    sizes = []
    for bound in (0.01, 0.1, 1.0):
        _, _, sent = reduce_all([make("sz3", error_bound=bound) for _ in range(2)], [tensor] * 2, layout, Route.GATHER)
        sizes.append(sent)
    assert sizes[0] > 1.5 * sizes[1] > 2 * sizes[2]
    assert sizes[2] < 2 * 4 * 50_000 / 8


@pytest.mark.parametrize("bound", [0.001, 0.01, 0.1, 1.0])
def test_sz3_plans_about_what_it_sends(bound: float) -> None:
    layout = Layout(((50_000,),))
    context = contexts(layout, None, 1)[0]
    tensor = torch.distributions.Laplace(0.0, 1.0).icdf(0.5 + 0.499 * (2 * _uniform(50_000) - 1))
    codec = make("sz3", error_bound=bound)
    # Laplacian values take half again as much as the gradients it plans for.
    assert len(codec.encode(tensor, context)) == pytest.approx(1.5 * codec.payload_bytes(layout, context), rel=0.35)


def _uniform(numel: int) -> torch.Tensor:
    return torch.rand(numel, generator=torch.Generator().manual_seed(0))
