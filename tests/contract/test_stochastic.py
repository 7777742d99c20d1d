"""What compressors that round at random, or send means of many values, promise beyond the common laws."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Layout, Route
from compressors.base.payload import PayloadError
from tests.contract.carried import carried, energy_lost, randn, reduced
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts, reduce_all


def _mean(codec: Compressor, tensor: Tensor, draws: int) -> Tensor:
    return torch.stack([carried(codec, tensor, seed) for seed in range(draws)]).double().mean(dim=0)


# qsgd and terngrad


def test_qsgd_keeps_values_that_are_levels() -> None:
    tensor = torch.tensor([3.0, -4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 13.0])
    # norms 5 and 13: with 5 levels 3 and 4 are levels 3 and 4, and 13 is level 5
    found = carried(make("qsgd", levels=5, bucket_size=8), tensor)
    assert torch.allclose(found, tensor, rtol=1e-6)


def test_qsgd_rounds_to_the_levels_on_either_side() -> None:
    tensor = torch.tensor([1.0] * 8)  # 1 / sqrt(8) of the norm: level 0.35 of 1
    drawn = torch.stack([carried(make("qsgd", levels=1, bucket_size=8), tensor, seed) for seed in range(400)])
    norm = math.sqrt(8)
    assert ((drawn == 0) | ((drawn - norm).abs() < 1e-5)).all()
    assert float((drawn > 0).double().mean()) == pytest.approx(1 / norm, abs=0.03)


@pytest.mark.parametrize("bucket_size", [13, 512, 1000])
def test_qsgd_errors_are_below_one_level_of_their_own_bucket(bucket_size: int) -> None:
    tensor = randn(0, 200_001).pow(3)
    found = carried(make("qsgd", bucket_size=bucket_size), tensor)
    padded = torch.nn.functional.pad(tensor, (0, -len(tensor) % bucket_size)).view(-1, bucket_size)
    steps = (padded.norm(dim=1) / 127).repeat_interleave(bucket_size)[: len(tensor)]
    assert ((found - tensor).abs() <= steps * 1.0001).all()


def test_qsgd_has_the_error_of_buckets() -> None:
    tensor = randn(0, 2_000_000).pow(3)
    assert math.sqrt(energy_lost(make("qsgd", bucket_size=128), tensor)) == pytest.approx(0.036, abs=0.006)
    assert math.sqrt(energy_lost(make("qsgd", bucket_size=2**20), tensor)) > 1


@pytest.mark.parametrize("largest", [1e-34, 1e-25, 1e-18, 1e20, 1e36])
def test_qsgd_and_eden_norms_may_have_squares_beyond_float32(largest: float) -> None:
    tensor = randn(0, 2048).clamp(-3, 3) * (largest / 3)
    assert _lost_in_double(make("qsgd"), tensor) < 0.01
    if largest > 1e-25:
        assert _lost_in_double(make("eden"), tensor) < 0.015


def _lost_in_double(codec: Compressor, tensor: Tensor) -> float:
    exact = tensor.double()
    return float((carried(codec, tensor).double() - exact).square().sum() / exact.square().sum())


@pytest.mark.parametrize(("levels", "bits"), [(1, 2), (2, 4), (7, 4), (8, 8), (127, 8)])
def test_qsgd_packs_codes(levels: int, bits: int) -> None:
    codec = make("qsgd", levels=levels)
    payload = codec.encode(randn(0, 5000), contexts(Layout(((5000,),)), None, 1)[0])
    assert len(payload) == 4 * 10 + 5000 * bits // 8


def test_terngrad_sends_three_values_a_bucket() -> None:
    tensor = randn(0, 1024)
    found = carried(make("terngrad"), tensor).view(2, 512)
    for row, ours in zip(found, tensor.view(2, 512), strict=True):
        largest = float(ours.abs().max())
        assert sorted(set(row.tolist())) == pytest.approx([-largest, 0.0, largest])
    payload = make("terngrad").encode(tensor, contexts(Layout(((1024,),)), None, 1)[0])
    assert len(payload) == 4 * 2 + 1024 // 4


def test_terngrad_with_clipping_is_biased_and_loses_less() -> None:
    tensor = randn(0, 512).pow(3)
    plain, clipped = make("terngrad"), make("terngrad", clip_sigmas=2.5)
    assert plain.traits.unbiased and not clipped.traits.unbiased
    assert energy_lost(clipped, tensor) < energy_lost(plain, tensor)
    limit = 2.5 * float(tensor.square().mean().sqrt())
    assert float(carried(clipped, tensor).abs().max()) == pytest.approx(limit, rel=1e-5)
    inside = tensor.abs() < limit
    off = _mean(clipped, tensor, 600)
    assert float((off - tensor)[inside].abs().max()) < 6 * limit / (2 * math.sqrt(600))
    assert torch.allclose(off[~inside].abs(), torch.full_like(off[~inside], limit), rtol=1e-5)


# intsgd


def test_intsgd_scales_by_the_mean_gradients_of_the_past() -> None:
    world_size, numel, beta = 3, 70_000, 0.75
    ranks = [make("intsgd", beta=beta) for _ in range(world_size)]
    energy = 0.0
    for step in range(4):
        tensors = [randn(10 * step + rank, numel) for rank in range(world_size)]
        mean, errors, sent = reduced(ranks, tensors, step)
        assert sent == ranks[0].sent_bytes(Layout(((numel,),)), world_size, Route.OWN, step=step)
        assert sent == 2 * (world_size - 1) * (numel + (4 if step == 0 else 0))
        if step:
            alpha = math.sqrt(numel / (2 * world_size * energy))
            integers = (tensors[0] - errors[0]).double() * alpha
            assert float((integers - integers.round()).abs().max()) < 1e-4
            assert float(errors[0].abs().max()) * alpha <= 1.0001
        new = float(mean.double().square().sum())
        energy = beta * energy + (1 - beta) * new if step else new
        states = [rank.state_dict() for rank in ranks]
        assert states == [states[0]] * world_size
        assert states[0]["0/0/"] == pytest.approx(energy, rel=1e-5)


@pytest.mark.parametrize(("dtype", "most"), [("int8", 127), ("int32", 65535)])
def test_intsgd_says_how_many_ranks_it_can_sum(dtype: str, most: int) -> None:
    codec = make("intsgd", dtype=dtype)
    assert not list(codec.validate(most))
    (fault,) = codec.validate(most + 1)
    assert f"workers={most + 1}: IntSGD sums at most {most} ranks" in fault


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_intsgd_cuts_off_rather_than_overflows(dtype: str) -> None:
    ranks = [make("intsgd", dtype=dtype) for _ in range(3)]
    reduced(ranks, [1e-6 * randn(rank, 100) for rank in range(3)], 0)
    tensors = [1e6 * randn(0, 100)] * 3  # 10^12 times as large as the past was
    mean, errors, _ = reduced(ranks, tensors, 1)
    assert torch.equal(mean.sign(), tensors[0].sign())
    assert (mean.abs() < tensors[0].abs()).all()
    assert torch.allclose(mean + torch.stack(errors).mean(dim=0), tensors[0], rtol=1e-5)


def test_intsgd_with_int32_is_nearly_exact_in_its_first_step() -> None:
    tensors = [randn(rank, 1000) for rank in range(2)]
    mean, _, _ = reduced([make("intsgd", dtype="int32") for _ in tensors], tensors, 0)
    assert float((mean - (tensors[0] + tensors[1]) / 2).abs().max()) < 2e-4


@pytest.mark.parametrize("name", ["qsgd", "terngrad", "eden"])
def test_errors_of_ranks_average_out(name: str) -> None:
    tensor, layout = randn(0, 4096), Layout(((4096,),))
    params: dict[str, object] = {"bits": 1} if name == "eden" else {}
    lost = []
    for world_size in (1, 8):
        ranks = [make(name, **params) for _ in range(world_size)]
        means, _, _ = reduce_all(ranks, [tensor] * world_size, layout, Route.GATHER)
        lost.append(float((means[0] - tensor).square().sum()))
    assert lost[1] == pytest.approx(lost[0] / 8, rel=0.15)


# sketchml and adaq


def test_sketchml_keeps_the_sum_and_fills_buckets_alike() -> None:
    tensor = randn(0, 100_000).pow(3)
    codec = make("sketchml")
    found = carried(codec, tensor)
    assert len(set(found.tolist())) <= 256
    assert float(found.double().sum()) == pytest.approx(float(tensor.double().sum()), abs=0.05)
    payload = codec.encode(tensor, contexts(Layout(((100_000,),)), None, 1)[0])
    assert len(payload) == 4 * 256 + 100_000
    shares = torch.bincount(payload[1024:].int(), minlength=256) / 100_000 * 256
    assert float(shares.median()) == pytest.approx(1, abs=0.1)
    assert float(((shares > 0.5) & (shares < 1.6)).double().mean()) > 0.9


def test_sketchml_orders_buckets_as_values() -> None:
    tensor = torch.cat([randn(0, 3000), torch.zeros(1)])
    payload = make("sketchml").encode(tensor, contexts(Layout(((3001,),)), None, 1)[0])
    codes = payload[1024:].int()
    assert (codes[tensor.sort().indices].diff() >= 0).all()


@pytest.mark.parametrize("buckets", [2, 4, 16, 64, 128, 256])
def test_sketchml_loses_what_lies_within_buckets(buckets: int) -> None:
    tensor, codec = randn(0, 50_000), make("sketchml", buckets=buckets)
    within = sum(float((part - part.mean()).square().sum()) for part in tensor.sort().values.chunk(buckets))
    lost = energy_lost(codec, tensor)
    assert lost == pytest.approx(within / float(tensor.square().sum()), rel=0.4)
    assert codec.uses_feedback == (lost > 0.05)


def test_adaq_sends_two_means() -> None:
    tensor = torch.tensor([0.5, -1.0, 4.0, 0.0, -3.0, 2.0, 0.25, 1.0, -5.0, 0.0])
    # of 5 positive entries 2 are kept, 4 and 2; of 3 negative ones 2, -3 and -5
    found = carried(make("adaq", density=0.4), tensor)
    assert found.tolist() == [0, 0, 3, 0, -4, 3, 0, 0, -4, 0]
    payload = make("adaq", density=0.4).encode(tensor, contexts(Layout(((10,),)), None, 1)[0])
    assert payload.view(torch.int32)[2:].tolist() == [2, 2, 2, 5, 4, 8]


def test_adaq_keeps_about_the_share_it_is_told_of_a_large_bucket() -> None:
    tensor = randn(0, 1_000_000) + 0.5
    found = carried(make("adaq"), tensor)
    for kept, all_of_them in ((found > 0, tensor > 0), (found < 0, tensor < 0)):
        assert int(kept.sum()) == pytest.approx(0.01 * int(all_of_them.sum()), rel=0.15)


def test_adaq_finds_entries_that_its_sample_misses() -> None:
    tensor = torch.zeros(1_000_000)
    tensor[[123_456, 777_777]] = torch.tensor([2.0, -3.0])
    assert torch.equal(carried(make("adaq"), tensor), tensor)


def test_adaq_refuses_counts_that_are_not_those_of_its_indices() -> None:
    tensor, context = randn(0, 300), contexts(Layout(((300,),)), None, 1)[0]
    codec = make("adaq", density=0.1)
    payload = codec.encode(tensor, context)
    for first, second in ((-1, 1), (2**31 - 1, 2**31 - 1), (0, 1)):
        bad = payload.clone()
        bad[8:16] = torch.tensor([first, second], dtype=torch.int32).view(torch.uint8)
        with pytest.raises(PayloadError, match="positive and"):
            codec.decode(bad, torch.zeros(300), context)


@pytest.mark.parametrize(
    ("name", "params", "lines"),
    [
        ("qsgd", {"levels": 128, "bucket_size": 7}, 2),
        ("qsgd", {"levels": True}, 1),
        ("terngrad", {"bucket_size": 0, "clip_sigmas": 0.5}, 2),
        ("intsgd", {"dtype": "int16", "beta": 1.0}, 2),
        ("thc", {"levels": 0, "truncated": 2, "block_size": 1000, "dtype": "int4"}, 4),
        ("thc", {"levels": 256}, 1),
        ("eden", {"bits": 3, "block_size": 4}, 2),
        ("sketchml", {"buckets": 100}, 1),
        ("adaq", {"density": 0}, 1),
    ],
)
def test_every_bad_parameter_is_named(name: str, params: dict[str, object], lines: int) -> None:
    with pytest.raises(ValueError, match=r"must be|unknown") as raised:
        make(name, **params)
    faults = str(raised.value).splitlines()
    assert len(faults) == lines
    for line, (key, value) in zip(faults, params.items(), strict=True):
        assert line.startswith((f"{key}={value}: must be", f"{key}={value}: unknown; "))
