"""Error feedback of each kind does what its paper says."""

from __future__ import annotations

import pytest
import torch

from compressors.base.compressor import Layout, Route
from compressors.base.feedback import EF21, ErrorFeedback, MomentumFeedback, with_feedback
from compressors.base.memory import moved
from compressors.none import Uncompressed
from compressors.topk import TopK
from tests.contract.catalogue import LAYOUT, gradients, make
from tests.contract.lockstep import contexts, reduce_all


def test_the_kind_follows_the_parameter() -> None:
    assert isinstance(with_feedback(TopK()), ErrorFeedback)
    assert isinstance(with_feedback(TopK(feedback="ef21")), EF21)
    assert isinstance(with_feedback(TopK(feedback="momentum")), MomentumFeedback)
    assert with_feedback(TopK(feedback="off")).uses_feedback is False
    assert list(make("fp16", feedback="ef21").validate(2)) == [
        "feedback=ef21: needs a contraction, which Float16 does not promise to be"
    ]


@pytest.mark.parametrize("feedback", ["plain", "ef21", "momentum"])
def test_memory_that_was_made_before_the_first_step_changes_nothing(feedback: str) -> None:
    kept = []
    for is_prepared in (False, True):
        compressor = with_feedback(TopK(feedback=feedback, density=0.1))
        compressor.adopt(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], momentum=0.9))
        if is_prepared:
            compressor.prepare(torch.empty(LAYOUT.numel), contexts(LAYOUT, Route.GATHER, 1)[0])
            made = compressor.state_dict()
        for step in range(3):
            means, _, _ = reduce_all([compressor], gradients(LAYOUT, 1), LAYOUT, Route.GATHER, step=step)
        state = compressor.state_dict()
        kept.append((means[0], {name: state[name] for name in state if name != "inner"}))
    (mean, memories), (mean_prepared, memories_prepared) = kept
    assert torch.equal(mean, mean_prepared)
    for name, by_key in memories.items():
        assert by_key.keys() == memories_prepared[name].keys() == made[name].keys()
        assert not any(tensor.any() for tensor in made[name].values())
        assert all(torch.equal(by_key[key], memories_prepared[name][key]) for key in by_key)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_that_loses_nothing_is_the_optimizers_momentum_without_masking(nesterov: bool) -> None:
    """Of an entry that is sent only in the last step, exactly what SGD would have applied by then."""
    layout = Layout(((2,),))
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=1.0, momentum=0.9, nesterov=nesterov)
    reference = torch.optim.SGD(
        [applied := torch.nn.Parameter(torch.zeros(2))], lr=1.0, momentum=0.9, nesterov=nesterov
    )
    ours = MomentumFeedback(TopK(density=0.5))
    ours.adopt(optimizer)
    assert optimizer.param_groups[0]["momentum"] == 0
    total = torch.zeros(2)
    for step in range(6):
        gradient = torch.tensor([500.0, 1.0]) if step < 5 else torch.tensor([0.0, 1.0])
        applied.grad = gradient.clone()
        reference.step()
        means, _, _ = reduce_all([ours], [gradient], layout, Route.GATHER, step=step)
        total += means[0]
    assert float(total[1]) == pytest.approx(-float(applied.detach()[1]), rel=1e-6)


def test_momentum_is_refused_where_the_optimizer_has_moments() -> None:
    parameter = [torch.nn.Parameter(torch.zeros(1))]
    with pytest.raises(ValueError, match="TopK applies momentum itself and needs SGD, found Adam"):
        MomentumFeedback(TopK()).adopt(torch.optim.Adam(parameter))
    with pytest.raises(ValueError, match="without dampening"):
        MomentumFeedback(TopK()).adopt(torch.optim.SGD(parameter, momentum=0.9, dampening=0.5))


def test_ef21_comes_to_the_gradient_if_that_stands_still() -> None:
    ranks = [EF21(TopK(density=0.1)) for _ in range(3)]
    tensors = gradients(LAYOUT, 3)
    expected = torch.stack(tensors).mean(dim=0)
    off = []
    for step in range(60):
        means, errors, _ = reduce_all(ranks, tensors, LAYOUT, Route.TWO_SHOT, step=step)
        off.append(float((means[0] - expected).norm() / expected.norm()))
        contributed = torch.stack([t - e for t, e in zip(tensors, errors, strict=True)]).mean(dim=0)
        assert torch.allclose(contributed, means[0], atol=1e-5)
    assert off[-1] < 0.01 < off[0]


def test_residuals_follow_their_parameters_into_other_buckets() -> None:
    old = [Layout(((3,), (2,)), 0, ("a", "b")), Layout(((4,),), 1, ("c",))]
    new = [Layout(((4,), (3,)), 0, ("c", "a")), Layout(((2,), (1,)), 1, ("b", "d"))]
    state = {"0/0/": torch.arange(5.0), "1/0/": torch.arange(10.0, 14.0)}
    result = moved(state, old, new)
    assert result["0/0/"].tolist() == [10, 11, 12, 13, 0, 1, 2]
    assert result["1/0/"].tolist() == [3, 4, 0]
    with pytest.raises(ValueError, match="names of parameters"):
        moved(state, [Layout(((3,), (2,)))], new)
    assert Uncompressed().move_state({}, old, new) == {}


def test_momentum_is_refused_where_every_entry_changes() -> None:
    (fault,) = make("int8", feedback="momentum").validate(4)
    assert "every velocity would begin anew" in fault
    assert list(make("topk", feedback="momentum").validate(4)) == []


def test_what_is_kept_of_a_bucket_of_another_size_is_not_dropped_in_silence() -> None:
    rank = ErrorFeedback(TopK())
    reduce_all([rank], gradients(LAYOUT, 1), LAYOUT, Route.GATHER)
    with pytest.raises(ValueError, match="is to be moved when buckets change"):
        reduce_all([rank], [torch.zeros(5)], Layout(((5,),)), Route.GATHER)
