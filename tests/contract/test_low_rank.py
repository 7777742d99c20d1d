"""What low-rank members promise beyond the common laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from compressors.base.compressor import Layout, Route
from compressors.base.feedback import with_feedback
from compressors.parts.low_rank import orthonormalise
from compressors.powersgd import PowerSGD
from testbed.worker.laws import judge
from testbed.worker.laws.cases.registry import BOOK
from tests.contract.catalogue import CASES, make
from tests.contract.lockstep import contexts, reduce_all

MATRIX = Layout(((40, 60),))
NAMED = Layout(((40, 60), (9,), (30, 30)), 0, ("wide", "bias", "square"))


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_basis_is_orthonormal_and_spans_the_rows() -> None:
    rows = _random(0, 4, 300)
    rows[3] = rows[0] + 1e-4 * rows[3]  # nearly parallel
    basis = orthonormalise(rows)
    assert torch.allclose(basis @ basis.T, torch.eye(4), atol=1e-5)
    assert torch.allclose(rows @ basis.T @ basis, rows, atol=1e-4)
    assert torch.equal(orthonormalise(rows.clone()), basis)


def test_a_basis_of_too_few_rows_is_finite_and_that_of_nan_is_not() -> None:
    rows = _random(0, 4, 300)
    rows[1] = 0.0
    rows[2] = rows[0]
    basis = orthonormalise(rows)
    assert torch.allclose(basis @ basis.T, torch.eye(4), atol=1e-5)
    rows[1, 7] = torch.nan
    assert not orthonormalise(rows).isfinite().all()


@pytest.mark.parametrize("name", ["powersgd", "acpsgd"])
def test_it_never_loses_more_than_there_is(name: str) -> None:
    rank = make(name)
    for step in range(6):
        given = _random(step, 2400)
        means, errors, _ = reduce_all([rank], [given], MATRIX, Route.OWN, step=step)
        assert float(errors[0].norm()) <= float(given.norm()) * (1 + 1e-6)
        # C projects, so what is left is at right angles to what is sent.
        assert abs(float(means[0] @ errors[0])) <= 1e-4 * float(given.norm()) ** 2


def test_acpsgd_comes_close_to_the_best_matrix_of_its_rank() -> None:
    matrix = _random(0, 40, 60)
    u, s, v = torch.linalg.svd(matrix)
    best = float((matrix - u[:, :3] * s[:3] @ v[:3]).norm())
    rank = make("acpsgd", rank=3)
    errors = []
    for step in range(80):
        means, _, _ = reduce_all([rank], [matrix.view(-1)], MATRIX, Route.OWN, step=step)
        errors.append(float((matrix.view(-1) - means[0]).norm()))
    assert errors[0] > 1.05 * best
    assert errors[-1] < 1.01 * best
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(errors))


def test_two_steps_of_acpsgd_are_one_of_powersgd() -> None:
    """P of the first, orthonormalised in the second, is the basis of PowerSGD from the same first Q."""
    tensors = [_random(rank, 2400) for rank in range(2)]
    power, alternating = ([make(name, rank=2) for _ in tensors] for name in ("powersgd", "acpsgd"))
    for ranks in (power, alternating):
        drawn = {"q:0/0//0": _random(9, 2, 60)}
        for rank in ranks:
            rank.load_state_dict(drawn)
    expected, _, _ = reduce_all(power, tensors, MATRIX, Route.OWN, step=0)
    reduce_all(alternating, tensors, MATRIX, Route.OWN, step=0)
    found, _, _ = reduce_all(alternating, tensors, MATRIX, Route.OWN, step=1)
    assert torch.allclose(found[0], expected[0], atol=1e-4)


def test_acpsgd_sends_one_factor_a_step() -> None:
    ranks = [make("acpsgd", rank=2) for _ in range(3)]
    for step, numel in enumerate((2 * 40, 2 * 60, 2 * 40)):
        tensors = [_random(3 * step + rank, 2400) for rank in range(3)]
        _, _, sent = reduce_all(ranks, tensors, MATRIX, Route.OWN, step=step)
        assert sent == 2 * 2 * 4 * numel == ranks[0].sent_bytes(MATRIX, 3, Route.OWN, step=step)


def test_powersgd_sends_buckets_whole_before_its_start() -> None:
    ranks = [make("powersgd", start_step=2) for _ in range(3)]
    for step in range(4):
        tensors = [_random(3 * step + rank, NAMED.numel) for rank in range(3)]
        means, errors, sent = reduce_all(ranks, tensors, NAMED, Route.OWN, step=step)
        payload = ranks[0].payload_bytes(NAMED, contexts(NAMED, Route.OWN, 3, step=step)[0])
        assert sent == 2 * 2 * payload == ranks[0].sent_bytes(NAMED, 3, Route.OWN, step=step)
        is_dense = step < 2
        assert (payload == 4 * NAMED.numel) is is_dense
        assert torch.allclose(means[0], torch.stack(tensors).mean(dim=0), atol=1e-6) is is_dense
        assert [bool(error.any()) for error in errors] == [not is_dense] * 3
        assert bool(ranks[0].state_dict()) is not is_dense


def test_powersgd_starts_late_as_if_nothing_had_been_before() -> None:
    late = [with_feedback(make("powersgd", start_step=2)) for _ in range(2)]
    fresh = [with_feedback(make("powersgd")) for _ in range(2)]
    for step in range(5):
        tensors = [_random(2 * step + rank, NAMED.numel) for rank in range(2)]
        found, _, _ = reduce_all(late, tensors, NAMED, Route.OWN, step=step)
        if step >= 2:
            expected, _, _ = reduce_all(fresh, tensors, NAMED, Route.OWN, step=step)
            assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize(
    "law",
    ["bytes", "rounds", "same-mean", "mean", "in-place", "seeds", "nothing-lost", "ef21", "resume", "other-buckets"],
)
def test_laws_hold_while_powersgd_starts(law: str) -> None:
    case = CASES["powersgd"]
    starting = replace(case, build=lambda **params: case.build(**{"start_step": 2, **params}))
    (on_its_route,) = judge.cases_of(BOOK[law], starting)[:1]
    BOOK[law].check(on_its_route)


@pytest.mark.parametrize("start_step", [-1, 1.5, True])
def test_the_start_of_powersgd_is_a_step(start_step: object) -> None:
    with pytest.raises(ValueError, match=f"^start_step={start_step}: must be a whole number, at least 0$"):
        make("powersgd", start_step=start_step)


@pytest.mark.parametrize("name", ["powersgd", "acpsgd"])
def test_factors_follow_their_parameters_by_name(name: str) -> None:
    new = [Layout(((30, 30), (9,)), 0, ("square", "bias")), Layout(((40, 60),), 1, ("wide",))]
    straight, rank = make(name), make(name)
    for step in range(2):
        for codec in (straight, rank):
            reduce_all([codec], [_random(step, NAMED.numel)], NAMED, Route.OWN, step=step)
    rank.load_state_dict(rank.move_state(rank.state_dict(), [NAMED], new))
    given = _random(2, NAMED.numel)
    wide, bias, square = torch.split(given, NAMED.numels)
    expected, _, _ = reduce_all([straight], [given], NAMED, Route.OWN, step=2)
    first, _, _ = reduce_all([rank], [torch.cat([square, bias])], new[0], Route.OWN, step=2)
    second, _, _ = reduce_all([rank], [wide], new[1], Route.OWN, step=2)
    assert torch.equal(torch.cat([second[0], first[0][900:], first[0][:900]]), expected[0])


@pytest.mark.parametrize("name", ["powersgd", "acpsgd"])
def test_a_gradient_that_is_not_finite_is_forgotten(name: str) -> None:
    rank = make(name)
    given = _random(0, 2400)
    for step in range(6):
        bad = given.clone()
        if step == 1:
            bad[17] = torch.nan
        means, _, _ = reduce_all([rank], [bad], MATRIX, Route.OWN, step=step)
        assert bool(means[0].isfinite().all()) == (step != 1)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_rows_of_a_kept_factor_that_are_not_finite_or_zero_are_drawn_anew(bad: float) -> None:
    codec = PowerSGD(rank=4)
    context = contexts(MATRIX, Route.OWN, 1)[0]
    kept = _random(0, 4, 60)
    kept[1, 7], kept[2] = bad, 0.0
    codec.load_state_dict({"q:w": kept})
    warm = codec.warm("q:w", 60, 0, context, kept.device)
    assert torch.equal(warm[[0, 3]], kept[[0, 3]])
    assert warm.isfinite().all() and (warm.norm(dim=1) > 1).all()
    sound = _random(1, 4, 60)
    codec.load_state_dict({"q:w": sound})
    assert torch.equal(codec.warm("q:w", 60, 0, context, kept.device), sound)


@pytest.mark.parametrize("name", ["powersgd", "acpsgd"])
@pytest.mark.parametrize("rank", [0, 1.5, True])
def test_rank_is_a_whole_number(name: str, rank: object) -> None:
    with pytest.raises(ValueError, match=f"^rank={rank}: must be a whole number, at least 1$"):
        make(name, rank=rank)
