"""Sparse methods in which ranks agree on what is kept."""

from __future__ import annotations

import pytest
import torch

from compressors.base.compressor import Layout, Route
from compressors.base.feedback import ErrorFeedback
from compressors.base.streams import Stream
from compressors.cocktailsgd import CocktailSGD
from compressors.countsketch import CountSketch
from compressors.demo import DeMo
from compressors.gtopk import GlobalTopK
from compressors.oktopk import OkTopK
from compressors.parts.sampling import sample, strata
from tests.contract.lockstep import contexts, reduce_all

N = 5000
LAYOUT = Layout(((N,),))


def _heavy(world_size: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(N, generator=generator).pow(3) for _ in range(world_size)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_gtopk_keeps_the_largest_sums_where_ranks_agree_on_them(world_size: int) -> None:
    generator = torch.Generator().manual_seed(1)
    common = torch.zeros(N)
    places = torch.randperm(N, generator=generator)[:50]
    common[places] = 10 + torch.rand(50, generator=generator)
    tensors = [common + 0.01 * noise for noise in _heavy(world_size)]
    means, _, sent = reduce_all([GlobalTopK() for _ in tensors], tensors, LAYOUT, Route.OWN)
    expected = torch.stack(tensors).mean(dim=0)
    assert torch.equal(means[0].nonzero().view(-1), places.sort().values)
    assert torch.allclose(means[0][places], expected[places], rtol=1e-5)
    assert sent == 2 * (world_size - 1) * 8 * 50


def test_gtopk_gives_back_what_meetings_drop() -> None:
    """Each rank's own largest entries are elsewhere, so that every meeting drops half of what it sees."""
    tensors = [torch.zeros(N) for _ in range(4)]
    for rank, tensor in enumerate(tensors):
        tensor[rank * 100 : rank * 100 + 50] = rank + 1.0
    means, errors, _ = reduce_all([GlobalTopK() for _ in tensors], tensors, LAYOUT, Route.OWN)
    assert means[0][300:350].eq(1.0).all() and int(means[0].count_nonzero()) == 50
    total = sum(t - e for t, e in zip(tensors, errors, strict=True))
    assert torch.equal(total / 4, means[0])


def test_oktopk_finds_the_largest_sums_and_then_lives_on_thresholds() -> None:
    ranks = [OkTopK(reestimate=4) for _ in range(4)]
    counts, sizes = [], []
    for step in range(8):
        tensors = _heavy(4, seed=step)
        means, errors, sent = reduce_all(ranks, tensors, LAYOUT, Route.OWN, step=step)
        counts.append(int(means[0].count_nonzero()))
        sizes.append(sent)
        contributed = torch.stack([t - e for t, e in zip(tensors, errors, strict=True)]).mean(dim=0)
        assert torch.allclose(contributed, means[0], atol=1e-5)
    assert counts[0] == counts[4] == 50
    assert all(15 <= count <= 150 for count in counts)
    # less than gathering the largest entries of all ranks would take, and at most twice what it says
    assert max(sizes) < 4 * 3 * 8 * 50
    assert max(sizes) < 2 * ranks[0].sent_bytes(LAYOUT, 4, Route.OWN)


@pytest.mark.parametrize("factor", [0.97, 0.1, 10.0])
def test_oktopk_keeps_to_its_share_when_gradients_change(factor: float) -> None:
    ranks = [ErrorFeedback(OkTopK(density=0.02)) for _ in range(8)]
    counts, sizes = [], []
    for step in range(40):
        scale = factor**step if factor > 0.9 and factor < 1 else (1.0 if step < 10 else factor)
        tensors = [tensor * scale for tensor in _heavy(8, seed=step)]
        means, _, sent = reduce_all(ranks, tensors, LAYOUT, Route.OWN, step=step)
        counts.append(int(means[0].count_nonzero()))
        sizes.append(sent)
    # now and then a threshold is off for one step, and no longer
    assert min(counts) > 5 and 0.7 * 40 * 100 < sum(counts) < 1.8 * 40 * 100
    assert sum(sizes) < 1.5 * 40 * ranks[0].sent_bytes(LAYOUT, 8, Route.OWN)


def test_oktopk_cuts_regions_where_the_entries_are() -> None:
    tensors = _heavy(4)
    for tensor in tensors:
        tensor[: N // 2] *= 100  # nearly all that is kept lies in the first half
    ranks = [OkTopK() for _ in tensors]
    reduce_all(ranks, tensors, LAYOUT, Route.OWN)
    boundaries = ranks[0].state_dict()["0/0/"]["boundaries"].tolist()
    assert boundaries[0] == 0 and boundaries[-1] == N
    assert boundaries[3] <= N // 2 + 200


def test_countsketch_finds_what_stands_out_and_does_not_drown_in_its_own_errors() -> None:
    ranks = [CountSketch(density=0.01, rows=5, width=8) for _ in range(2)]
    tensors = [tensor.abs() * 1e-3 for tensor in _heavy(2)]
    for tensor in tensors:
        tensor[torch.arange(0, N, 250)] = 5.0
    means, _, _ = reduce_all(ranks, tensors, LAYOUT, Route.OWN, step=0)
    assert means[0][::250].allclose(torch.tensor(5.0), rtol=0.05)
    total, kept = means[0].clone(), []
    for step in range(1, 200):
        means, _, _ = reduce_all(ranks, tensors, LAYOUT, Route.OWN, step=step)
        total += means[0]
        kept.append(float(ranks[0].state_dict()["0/0/"].norm()))
    assert float((total / 200)[::250].median()) == pytest.approx(5.0, rel=0.05)
    assert max(kept[100:]) < 2 * max(kept[:100])


def test_demo_takes_the_largest_components_of_an_orthonormal_transform() -> None:
    layout = Layout(((64,),))
    wave = torch.cos(torch.pi / 64 * (torch.arange(64) + 0.5) * 5)  # component 5 alone
    codec, out = DeMo(kept=1), torch.zeros(64)
    context = contexts(layout, None, 1)[0]
    codec.decode(codec.encode(wave, context), out, context)
    assert torch.allclose(out, wave, atol=1e-5)
    tensor = torch.randn(64, generator=torch.Generator().manual_seed(0))
    codec.decode(codec.encode(tensor, context), out, context)
    lost = float((tensor - out).square().sum() / tensor.square().sum())
    assert lost <= 1 - 1 / 64
    for size in (64, 256):  # of which a byte holds every position
        whole = DeMo(chunk_size=size, kept=size)
        whole.decode(whole.encode(tensor, context), out, context)
        assert torch.allclose(out, tensor, atol=1e-5)


def test_demo_steps_by_signs_and_keeps_the_rest_of_its_momentum() -> None:
    layout = Layout(((64,),))
    rank = DeMo(kept=4, decay=0.9)
    tensor = torch.randn(64, generator=torch.Generator().manual_seed(0))
    means, _, _ = reduce_all([rank], [tensor], layout, Route.OWN)
    assert set(means[0].tolist()) <= {-1.0, 0.0, 1.0}
    left = rank.state_dict()["momentum"]["0/0/"]
    assert 0 < float(left.norm()) < float(tensor.norm())
    weights = [torch.nn.Parameter(torch.zeros(1))]
    taken = DeMo().adopt(torch.optim.AdamW(weights, lr=1.0, weight_decay=0.1))
    assert isinstance(taken, torch.optim.SGD)
    assert (taken.param_groups[0]["lr"], taken.param_groups[0]["weight_decay"]) == (0.001, 0.1)


def test_cocktailsgd_spends_a_fraction_of_a_bit_and_keeps_magnitudes_by_ratio() -> None:
    codec = CocktailSGD(drawn=0.1, density=0.2)
    context = contexts(Layout(((100_000,),)), None, 1)[0]
    assert codec.payload_bytes(context.layout, context) == 8 + 10_000 // 8 + 2000 // 2
    tensor = torch.randn(100_000, generator=torch.Generator().manual_seed(0)).pow(3)
    out = torch.zeros(100_000)
    codec.decode(codec.encode(tensor, context), out, context)
    kept = out.nonzero().view(-1)
    assert len(kept) == 2000  # none is rounded away, however long the tail
    ratio = float(tensor[kept].abs().max() / tensor[kept].abs().min())
    step = ratio ** (0.5 / 7)
    found = out[kept] / tensor[kept]
    assert 1 / step * 0.999 <= float(found.min()) and float(found.max()) <= step * 1.001


@pytest.mark.parametrize(("numel", "count"), [(10, 10), (10, 3), (1000, 7), (65_537, 655), (1, 1)])
def test_a_sample_has_each_entry_once_and_every_entry_its_turn(numel: int, count: int) -> None:
    starts = strata(numel, count)
    assert starts[0] == 0 and starts[-1] == numel
    assert (starts[1:] - starts[:-1]).min() >= numel // count
    seen = torch.zeros(numel)
    for key in range(400 if numel <= 1000 else 3):
        drawn = sample(Stream(key * 0x9E3779B97F4A7C15 % 2**64), numel, count)
        assert len(drawn.unique()) == count and bool((drawn[1:] > drawn[:-1]).all())
        seen[drawn] += 1
    if numel <= 1000:
        expected = 400 * count / numel
        assert float((seen - expected).abs().max()) < 6 * expected**0.5 + 1
