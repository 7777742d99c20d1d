from __future__ import annotations

import os
import threading
from typing import Any

import pytest
import torch
from torch import nn

from testbed.core.errors import RunError
from testbed.worker.training.evaluation import Evaluations
from testbed.worker.workloads.digits import Digits
from tests.waiting import HANG_S


class Gated(Digits):
    """Evaluates to the sum of all weights, once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.seen: list[tuple[bool, bool, int]] = []

    def evaluate(self, model: nn.Module) -> float:
        assert self.gate.wait(HANG_S), "nobody opens the gate"
        priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self.seen.append((model.training, torch.is_grad_enabled(), priority))
        return float(sum(tensor.sum() for tensor in (*model.parameters(), *model.buffers())))


@pytest.fixture
def workload() -> Gated:
    return Gated()


def _model() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    for tensor in (*model.parameters(), *model.buffers()):
        nn.init.zeros_(tensor)
    return model


def test_each_evaluation_is_of_the_model_at_its_own_step_and_they_come_in_order(workload: Gated) -> None:
    model, told = _model(), []
    priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    evaluations = Evaluations(workload, model, told.append)
    for step in range(1, 4):
        with torch.no_grad():
            model[0].weight.fill_(step)
            model[1].running_mean.fill_(100 * step)  # a buffer
        evaluations.start(step, step / 10)
    assert told == []
    with torch.no_grad():
        model[0].weight.fill_(-1)
    workload.gate.set()
    evaluations.finish(60)
    assert told == [
        {"event": "evaluation", "t_s": n / 10, "rank": 0, "step": n, "name": "accuracy", "value": 204.0 * n}
        for n in (1, 2, 3)
    ]
    assert workload.seen == [(False, False, 19)] * 3
    assert model.training
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == priority


def test_one_that_does_not_end_is_an_error(workload: Gated) -> None:
    evaluations = Evaluations(workload, _model(), lambda _: None)
    evaluations.start(1, 0.0)
    with pytest.raises(RunError, match=r"1 evaluations were not ready 0\.1 s after the last step"):
        evaluations.finish(0.1)
    workload.gate.set()


def test_what_an_evaluation_raises_reaches_the_training(workload: Gated) -> None:
    def emit(message: dict[str, Any]) -> None:
        raise ValueError("not a number")

    workload.gate.set()
    evaluations = Evaluations(workload, _model(), emit)
    evaluations.rehearse()
    evaluations.start(1, 0.0)
    with pytest.raises(ValueError, match="not a number"):
        evaluations.finish(60)
