"""What the sparse ones promise beyond the common laws."""

from __future__ import annotations

import math

import pytest
import torch

from compressors.base.chunks import root_mean_square
from compressors.base.compressor import Layout, Route
from compressors.base.feedback import MomentumFeedback, with_feedback
from compressors.base.payload import PayloadError
from compressors.dgc import DGC
from compressors.parts.sparse import Sparsifier
from compressors.randomk import RandomK
from compressors.sidco import SIDCo
from compressors.threshold import Threshold
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts, reduce_all
from tests.contract.vectors import KINDS, MANY, context_of, first_of_the_largest, hard, laplacian, normal, uniform


def test_what_has_no_fixed_size_says_how_many_it_carries() -> None:
    codec, context, out = make("threshold"), context_of(100), torch.zeros(100)
    payload = codec.encode(normal(100), context)
    count = int(payload[:4].view(torch.int32))
    assert len(payload) == 4 + 8 * count and count > 0
    assert len(codec.encode(torch.zeros(100), context)) == 4
    for said in (count - 1, count + 1, -1, 2**31 - 1, 101):
        wrong = payload.clone()
        wrong[:4] = torch.tensor([said], dtype=torch.int32).view(torch.uint8)
        with pytest.raises(PayloadError, match="are not a count of at most 100"):
            codec.decode(wrong, out, context)


def test_randomk_draws_the_same_on_all_ranks_and_anew_in_each_step() -> None:
    codec, numel = make("randomk", density=0.1), 1003
    assert isinstance(codec, RandomK)
    seen = []
    for step in range(3):
        drawn = [codec.select(torch.ones(numel), c)[0] for c in contexts(Layout(((numel,),)), None, 3, step=step)]
        assert all(torch.equal(d, drawn[0]) for d in drawn)
        assert len(drawn[0]) == 101 and bool((drawn[0].diff() > 0).all())
        assert int(drawn[0][0]) >= 0 and int(drawn[0][-1]) < numel
        seen.append(drawn[0].tolist())
    assert seen[0] != seen[1] != seen[2] != seen[0]


@pytest.mark.tier("all")
def test_randomk_draws_every_entry_as_often_as_any_other() -> None:
    codec, numel, draws = make("randomk", density=0.3), 11, 8000  # 4 stretches of 2 and 3
    assert isinstance(codec, RandomK)
    counts = torch.zeros(numel)
    for seed in range(draws):
        counts[codec.select(torch.ones(numel), context_of(numel, seed=seed))[0]] += 1
    p = 4 / numel
    assert float((counts / draws - p).abs().max()) < 5 * math.sqrt(p * (1 - p) / draws)


@pytest.mark.tier("all")
def test_randomk_is_unbiased_if_scaled_and_then_refuses_feedback() -> None:
    codec, tensor = make("randomk", density=0.25, scaled=True), normal(40)
    assert codec.traits.unbiased and codec.traits.contraction is None and not codec.uses_feedback
    (fault,) = make("randomk", density=0.01, scaled=True, feedback="on").validate(2)
    assert fault.startswith("feedback=on: RandomK is unbiased")
    assert make("randomk", density=0.01).feedback_kind == "plain"
    total, draws = torch.zeros(40), 4000
    for seed in range(draws):
        codec.decode(codec.encode(tensor, context_of(40, seed=seed)), total, context_of(40, seed=seed), add=True)
    assert bool(((total / draws - tensor).abs() < 6 * math.sqrt(3 / draws) * tensor.abs()).all())  # n/k - 1 is 3


def test_randomk_sums_values_alone() -> None:
    layout, tensors = Layout(((1000,),)), [normal(1000, seed) for seed in range(3)]
    ranks = [make("randomk", density=0.1) for _ in tensors]
    means, _, sent = reduce_all(ranks, tensors, layout, Route.REDUCE_SUM)
    some = means[0] != 0
    assert int(some.sum()) == 100 and sent == 2 * 2 * 400
    assert torch.allclose(means[0][some], torch.stack(tensors).mean(dim=0)[some], atol=1e-6)


@pytest.mark.parametrize("place", [0, 70_000, 199_999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_randomk_shows_what_is_not_finite_wherever_it_is(place: int, dtype: torch.dtype) -> None:
    codec, context, out = make("randomk", density=0.01), context_of(200_000), torch.zeros(200_000)
    tensor = torch.full((200_000,), 6e4, dtype=dtype)
    codec.decode(codec.encode(tensor, context), out, context)
    assert out.isfinite().all()  # though their sum may not be
    tensor[place] = math.inf
    codec.decode(codec.encode(tensor, context), out, context)
    assert int(out.isnan().sum()) == 2000


def test_threshold_is_a_multiple_of_the_root_mean_square() -> None:
    tensor = torch.tensor([3.0, -4.0, 0.0, 0.0])  # root mean square 2.5
    assert root_mean_square(tensor) == 2.5
    for threshold, expected in ((1.2, [0, 1]), (1.21, [1]), (1.6, [1]), (1.7, [1])):  # the largest goes anyway
        codec = make("threshold", threshold=threshold)
        assert isinstance(codec, Threshold)
        assert codec.select(tensor, context_of(4))[0].tolist() == expected
    for threshold, expected in ((3.0, [0, 1]), (3.5, [1]), (4.5, [])):  # an absolute one means what it says
        codec = make("threshold", threshold=threshold, relative=False)
        assert isinstance(codec, Threshold)
        assert codec.select(tensor, context_of(4))[0].tolist() == expected


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_threshold_finds_as_many_at_any_scale(scale: float) -> None:
    codec = make("threshold")
    assert isinstance(codec, Threshold)
    numel = 200_000
    found = len(codec.select(scale * normal(numel), context_of(numel))[0])
    assert found == pytest.approx(math.erfc(3 / math.sqrt(2)) * numel, rel=0.15)
    found = len(codec.select(scale * laplacian(numel), context_of(numel))[0])
    assert found == pytest.approx(codec.kept(numel, context_of(numel)), rel=0.1)


def test_dgc_warms_up_as_in_the_paper() -> None:
    codec = make("dgc", warmup_steps=40)
    assert isinstance(codec, DGC)
    found = [codec.density_at(step) for step in (0, 9, 10, 20, 30, 39, 40, 1000)]
    expected = [0.25, 0.25, 0.0625, 0.015625, 0.004, 0.004, 0.001, 0.001]
    assert found == pytest.approx(expected, rel=0.02)
    assert make("dgc", warmup_steps=0).density_at(0) == 0.001  # type: ignore[attr-defined]
    for warmup_steps in range(1, 12):
        densities = [DGC(warmup_steps=warmup_steps).density_at(step) for step in range(20)]
        assert densities == sorted(densities, reverse=True) and densities[warmup_steps] == 0.001


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("density", [0.001, 0.01, 0.25])
def test_dgc_sends_about_as_many_as_wanted_and_never_many_more(kind: str, density: float) -> None:
    codec, tensor = make("dgc", density=density, warmup_steps=0), hard(kind, MANY)
    assert isinstance(codec, DGC)
    for seed in range(5):
        context = context_of(MANY, seed=seed)
        indices, values = codec.select(tensor, context)
        assert torch.equal(values.view(torch.int32), tensor[indices].view(torch.int32))
        assert len(indices) <= 1.3 * codec.kept(MANY, context)
        left = tensor.clone()
        left[indices] = 0.0
        assert left.isfinite().all()
        assert not len(indices) or left.abs().max() <= values.nan_to_num(math.inf).abs().min()  # the largest went
        if kind in ("normal", "not finite"):
            assert len(indices) >= 0.7 * codec.kept(MANY, context)


def test_dgc_is_exact_where_the_bucket_is_small() -> None:
    codec, tensor = make("dgc", warmup_steps=0, density=0.01), normal(5000)
    assert isinstance(codec, DGC)
    assert torch.equal(codec.select(tensor, context_of(5000))[0], first_of_the_largest(tensor, 50))


def test_dgc_takes_the_momentum_of_the_optimizer_unless_given_one() -> None:
    for given, expected in ((None, 0.9), (0.5, 0.5)):
        wrapped = with_feedback(make("dgc", momentum=given))
        assert isinstance(wrapped, MomentumFeedback) and wrapped.traits.owns == "momentum"
        optimizer = torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=0.1, momentum=0.9)
        wrapped.adopt(optimizer)
        assert wrapped.momentum == expected and optimizer.param_groups[0]["momentum"] == 0


def test_dgc_with_momentum_corrects_as_hand_computed() -> None:
    """Velocities u = m u + g grow what is kept, v; where something is sent, both begin anew (Algorithm 4)."""
    rank = with_feedback(make("dgc", density=0.5, warmup_steps=0, momentum=0.5))
    layout, sent = Layout(((2,),)), []
    for step in range(3):
        means, _, _ = reduce_all([rank], [torch.tensor([4.0, 3.0])], layout, Route.GATHER, step=step)
        sent.append(means[0].tolist())
    # v: (4, 3) sends 4; u of the second is 3, then 4.5: v (4, 7.5) sends 7.5; v of the first 4 + (0.5 * 4 + 4) = 10.
    assert sent == [[4.0, 0.0], [0.0, 7.5], [10.0, 0.0]]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_sidco_of_one_exponential_stage_is_the_mean_times_the_logarithm(scale: float) -> None:
    codec = make("sidco", density=0.01, stages=1)
    assert isinstance(codec, SIDCo)
    magnitudes = scale * torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64)
    assert codec.threshold_of(magnitudes, 1) == pytest.approx(scale * 3 * math.log(100))
    # Two stages: the first leaves a quarter, above 3 ln 4 = 4.159; the excess of 6 is all that is left.
    first = 3 * math.log(4)
    assert codec.threshold_of(magnitudes, 2) == pytest.approx(scale * (first + (6 - first) * math.log(25)))


@pytest.mark.parametrize("distribution", ["exponential", "gamma", "pareto"])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_sidco_finds_what_it_was_asked_for_where_the_distribution_is_right(distribution: str, stages: int) -> None:
    codec, numel = make("sidco", distribution=distribution, stages=stages), 2**18
    assert isinstance(codec, SIDCo)
    found = len(codec.select(laplacian(numel), context_of(numel))[0])
    assert found == pytest.approx(codec.kept(numel, context_of(numel)), rel=0.12)


@pytest.mark.parametrize("shape", [-0.3, 0.1, 0.3])
def test_sidco_fits_a_generalised_pareto_in_one_stage(shape: float) -> None:
    codec = make("sidco", distribution="pareto", stages=1)
    assert isinstance(codec, SIDCo)
    magnitudes = 2.0 * ((1 - uniform(2**20)) ** -shape - 1) / shape
    exact = 2.0 * (0.01**-shape - 1) / shape
    assert codec.threshold_of(magnitudes, 1) == pytest.approx(exact, rel=0.05)


def test_sidco_adapts_its_stages_until_the_count_is_right() -> None:
    numel = 2**18
    for tensor in (normal(numel), normal(numel).pow(3)):
        codec = make("sidco")
        assert isinstance(codec, SIDCo)
        found = [len(codec.select(tensor, context_of(numel, step=step))[0]) / 2622 for step in range(40)]
        assert abs(found[0] - 1) > 0.5 > 0.25 > abs(found[-1] - 1)
        resumed = make("sidco")
        assert isinstance(resumed, SIDCo)
        resumed.load_state_dict(codec.state_dict())
        again = context_of(numel, step=40)
        assert torch.equal(resumed.encode(tensor, again), codec.encode(tensor, again))


@pytest.mark.parametrize("distribution", ["exponential", "gamma", "pareto"])
@pytest.mark.parametrize("stages", [0, 1, 2, 6])
def test_sidco_copes_with_magnitudes_of_no_distribution(distribution: str, stages: int) -> None:
    codec, numel = make("sidco", distribution=distribution, stages=stages), 1000
    assert isinstance(codec, SIDCo)
    assert len(codec.select(torch.zeros(numel), context_of(numel))[0]) == 0
    for tensor in (torch.ones(numel), torch.eye(1, numel)[0], torch.full((numel,), 3e38), torch.full((numel,), 1e-45)):
        assert 1 <= len(codec.select(tensor, context_of(numel))[0]) <= numel
    tensor = normal(numel)
    tensor[7] = math.nan
    assert codec.select(tensor, context_of(numel))[0].tolist() == [7]


@pytest.mark.parametrize(("chunk", "bits"), [(2, 8), (256, 8), (257, 9), (512, 9), (1000, 10), (4096, 12), (65536, 16)])
@pytest.mark.parametrize("kind", ["normal", "few values", "zeros", "not finite"])
def test_chunked_topk_is_topk_of_each_chunk(chunk: int, bits: int, kind: str) -> None:
    numel = 70_001 if chunk > 1000 else 3001
    codec, tensor, context = make("chunked_topk", chunk=chunk, density=0.02), hard(kind, numel), context_of(numel)
    assert isinstance(codec, Sparsifier)
    expected = []
    for start in range(0, numel, chunk):
        piece = tensor[start : start + chunk]
        expected.append(first_of_the_largest(piece, math.ceil(0.02 * len(piece) - 1e-9)) + start)
    indices, _ = codec.select(tensor, context)
    assert torch.equal(indices, torch.cat(expected))
    payload, out = codec.encode(tensor, context), torch.empty(numel)
    packed = -(-len(indices) * {8: 0, 9: 1, 10: 2, 12: 4, 16: 8}[bits] // 8)
    assert len(payload) == 5 * len(indices) + packed
    codec.decode(payload, out, context)
    sent = torch.zeros(numel)
    sent[indices] = tensor[indices]
    assert torch.equal(out.nan_to_num(7e7), sent.nan_to_num(7e7))


def test_chunked_topk_refuses_places_that_cannot_be() -> None:
    codec, context, out = make("chunked_topk", chunk=100, density=0.02), context_of(250), torch.zeros(250)
    payload = codec.encode(normal(250), context)  # 2, 2 and 1 of 50
    for at, place, message in ((1, 100, "not below 100"), (3, 0, "do not ascend"), (4, 50, "do not ascend")):
        wrong = payload.clone()
        wrong[4 * 5 + at] = place
        with pytest.raises(PayloadError, match=message):
            codec.decode(wrong, out, context)


@pytest.mark.parametrize(
    ("name", "params", "faults"),
    [
        ("randomk", {"density": 0, "scaled": 2}, ["density=0: must be", "scaled=2: must be"]),
        ("threshold", {"threshold": 0.0, "relative": "no"}, ["threshold=0.0: must be", "relative=no: must be"]),
        ("threshold", {"threshold": math.inf, "feedback": "x"}, ["threshold=inf: must be", "feedback=x: unknown"]),
        (
            "dgc",
            {"density": 2, "sample": 0, "warmup_steps": -1, "momentum": 1.0},
            ["density=2: must be", "sample=0: must be", "warmup_steps=-1: must be", "momentum=1.0: must be"],
        ),
        ("dgc", {"momentum": 0.9, "feedback": "plain"}, ["momentum=0.9: has no meaning with feedback=plain"]),
        (
            "sidco",
            {"density": True, "distribution": "normal", "stages": 1.5},
            ["density=True: must be", "distribution=normal: unknown", "stages=1.5: must be"],
        ),
        ("chunked_topk", {"density": 1.5, "chunk": 65537}, ["density=1.5: must be", "chunk=65537: must be"]),
    ],
)
def test_all_faults_of_parameters_are_named_at_once(name: str, params: dict[str, object], faults: list[str]) -> None:
    with pytest.raises(ValueError, match=r"must be|unknown|no meaning") as caught:
        make(name, **params)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(faults)
    assert all(line.startswith(fault) for line, fault in zip(lines, faults, strict=True))
