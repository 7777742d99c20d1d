"""What compressors that rotate promise beyond the common laws: thc and eden."""

from __future__ import annotations

import math

import pytest
import torch

from compressors.base.compressor import Layout, Route
from compressors.base.streams import Stream
from compressors.eden import centroids
from compressors.parts.hadamard import Rotation
from tests.contract.carried import energy_lost, randn, reduced
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts, reduce_all


def test_a_rotation_is_that_by_a_hadamard_matrix() -> None:
    rotation = Rotation(32, 8, Stream(7), torch.device("cpu"))
    tensor = randn(0, 32)
    (group,) = rotation.groups()
    found = rotation.forward(tensor, group)
    matrix = torch.tensor([[(-1.0) ** (i & j).bit_count() for j in range(8)] for i in range(8)]) / math.sqrt(8)
    signs = Stream(7).signs(0, 32).view(8, 4)
    for lane in range(4):
        ours = matrix @ (signs[:, lane] * tensor[lane::4])
        assert torch.allclose(found[0, :, lane], ours, atol=1e-6)


@pytest.mark.parametrize("numel", [1, 2, 3, 100, 513, 70_000, 200_001])
@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("width", [512, 1024])
def test_a_rotation_can_be_undone(numel: int, turns: int, width: int) -> None:
    tensor = randn(0, numel)
    rotation = Rotation(numel, width, Stream(3), tensor.device, turns=turns)
    energy, seen, out = 0.0, 0, torch.full((numel,), torch.nan)
    for group in rotation.groups():
        rotated = rotation.forward(tensor[group.entries], group)
        energy, seen = energy + float(rotated.double().square().sum()), seen + rotated.numel()
        factors = torch.full((group.shape[0] * group.shape[2],), 2.0)
        out[group.entries] = rotation.inverse(rotated, group, factors)
    assert seen == rotation.size and rotation.size - numel < rotation.width
    assert energy == pytest.approx(float(tensor.double().square().sum()), rel=1e-5)
    assert torch.allclose(out, 2 * tensor, atol=4e-6)


def test_edens_levels_are_those_of_max() -> None:
    """Max, "Quantizing for Minimum Distortion", IRE Transactions on Information Theory, 1960, Table I."""
    assert centroids(1)[1:] == pytest.approx([0.7980], abs=2e-4)
    assert centroids(2)[2:] == pytest.approx([0.4528, 1.510], abs=6e-4)
    expected = [0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733]
    assert centroids(4)[8:] == pytest.approx(expected, abs=6e-4)
    for bits in (1, 2, 4):
        assert centroids(bits) == pytest.approx([-level for level in reversed(centroids(bits))], abs=1e-9)


@pytest.mark.parametrize(("bits", "lost"), [(1, math.pi / 2 - 1), (2, 0.1331), (4, 0.0096)])
def test_eden_loses_the_same_of_any_distribution(bits: int, lost: float) -> None:
    """1 / (1 - D) - 1, where D is the distortion of Max's levels."""
    normal = randn(0, 20_000)
    ordered = normal.abs().sort(descending=True).values
    for tensor in (normal, normal.pow(5), ordered):
        assert energy_lost(make("eden", bits=bits), tensor) == pytest.approx(lost, rel=0.06)
    payload = make("eden", bits=bits).encode(normal, contexts(Layout(((20_000,),)), None, 1)[0])
    assert len(payload) == 20 * (4 + 1024 * bits // 8)


@pytest.mark.parametrize(("name", "params"), [("eden", {"bits": 1}), ("eden", {"bits": 2}), ("thc", {"truncated": 0})])
def test_rotated_values_are_right_on_average(name: str, params: dict[str, object]) -> None:
    tensor, draws = randn(0, 100).pow(3), 500
    codec = make(name, **params)
    assert codec.traits.unbiased
    drawn = []
    for seed in range(draws):
        route = Route.OWN if codec.traits.own_rounds else Route.GATHER
        means, _, _ = reduce_all([codec], [tensor], Layout(((100,),)), route, seed=seed)
        drawn.append(means[0].double())
    off = torch.stack(drawn).mean(dim=0) - tensor
    noise = float((torch.stack(drawn) - tensor).square().sum(dim=1).mean()) / draws
    # what chance leaves has this energy, give or take
    assert float(off.square().sum()) == pytest.approx(noise, rel=0.6)


def test_thc_sums_as_many_ranks_as_it_says() -> None:
    codec = make("thc")
    assert codec.traits.max_world == 17
    tensors = [torch.ones(64)] * 17
    mean, _, sent = reduced([make("thc") for _ in tensors], tensors, 0)
    assert float((mean - 1).abs().max()) < 0.3
    assert sent == 2 * 16 * (4 + 64)
    (fault,) = codec.validate(18)
    assert fault.startswith("workers=18: THC sums at most 17 ranks")
    assert make("thc", levels=60).traits.max_world == 4
    assert make("thc", dtype="int32").traits.max_world == (2**31 - 1) // 15


def test_thc_loses_less_with_more_levels_at_the_same_bytes() -> None:
    tensors = [randn(rank, 50_000).pow(3) for rank in range(4)]
    exact = torch.stack(tensors).mean(dim=0)
    lost, sizes = [], set()
    for levels in (15, 60):
        mean, _, sent = reduced([make("thc", levels=levels) for _ in tensors], tensors, 0)
        lost.append(float((mean - exact).square().sum() / exact.square().sum()))
        sizes.add(sent)
    assert len(sizes) == 1
    assert lost[1] < 0.6 * lost[0] < 0.6 * 0.05


def test_thc_restores_the_sum_of_integers_without_rounding() -> None:
    """Ranks' parts add up to the last bits even where a block mixes tensors of very different sizes."""
    tensor = torch.cat([randn(0, 512), 1e-5 * randn(1, 512)])
    mean, errors, _ = reduced([make("thc"), make("thc")], [tensor, tensor], 0)
    sent = torch.stack([tensor - error for error in errors]).double().mean(dim=0)
    assert float((mean.double() - sent).abs().max()) < 3e-7
