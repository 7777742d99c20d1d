"""Learning rates over a run, and who follows them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compressors.parts.optimizers import plain_sgd
from testbed.worker.interfaces.clipping import clipping_fault
from testbed.worker.interfaces.schedule import factor_at, rate_factor
from testbed.worker.training.optimizers import LearningRate, Optimizers
from testbed.worker.transforms.none import Unchanged
from testbed.worker.workloads.bytelm import Bytelm
from testbed.worker.workloads.digits import Digits
from testbed.worker.workloads.replay import Replay
from testbed.worker.workloads.texts import Texts


@pytest.mark.parametrize(
    ("schedule", "warm_up_steps", "expected"),
    [
        ("constant", 0, [1.0, 1.0, 1.0, 1.0]),
        ("constant", 4, [0.25, 0.5, 1.0, 1.0]),
        ("falling", 0, [1.0, 0.99, 0.5, 0.02]),
        ("falling", 2, [0.5, 0.99, 0.5, 0.02]),
    ],
)
def test_a_rate_rises_and_then_stays_or_falls(schedule: str, warm_up_steps: int, expected: list[float]) -> None:
    found = [factor_at(step, 100, schedule, warm_up_steps) for step in (0, 1, 50, 99)]
    assert found == pytest.approx(expected)


def test_a_workload_that_is_told_nothing_keeps_its_rate() -> None:
    for workload in (Digits(), Bytelm(), Replay(model="resnet18"), object()):
        assert [rate_factor(workload, step, 80) for step in (0, 79)] == [1.0, 1.0]
    assert rate_factor(Digits(schedule="falling", warm_up_steps=4), 1, 80) == 0.5 * (1 - 1 / 80)


def test_wrong_words_are_refused_together() -> None:
    with pytest.raises(ValueError, match="schedule=cosine") as caught:
        Digits(schedule="cosine", warm_up_steps=-1)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("schedule=cosine") and lines[1].startswith("warm_up_steps=-1")


def test_optimizers_made_within_a_step_begin_at_its_rate() -> None:
    model = nn.Linear(2, 2)
    optimizers = Optimizers(Unchanged(), model)
    optimizers.factor = 0.5
    made = torch.optim.SGD(model.parameters(), lr=0.4)
    optimizers.prepare(made)
    assert made.param_groups[0]["lr"] == pytest.approx(0.2)


@pytest.mark.parametrize(("own", "expected"), [(None, 0.2), (0.01, 0.005)])
def test_an_optimizer_in_anothers_place_follows_its_rate(own: float | None, expected: float) -> None:
    parameter = nn.Parameter(torch.zeros(1))
    given = torch.optim.SGD([parameter], lr=0.4)
    plain, rate = plain_sgd(given, own), LearningRate(given)
    parameter.grad = torch.ones(1)
    rate.set(0.5)
    plain.step()
    assert float(parameter.detach()) == pytest.approx(-expected)
    rate.set(1.0)
    plain.step()
    assert float(parameter.detach()) == pytest.approx(-3 * expected)


def test_clipping_needs_all_gradients_at_once() -> None:
    assert clipping_fault("dear", Digits()) is None and clipping_fault("dear", Texts(clip_norm=None)) is None
    fault = clipping_fault("dear", Texts())
    assert fault is not None and "Texts clips the norm of all gradients together" in fault
    assert "workload.clip_norm=null, or strategy=ddp" in fault
