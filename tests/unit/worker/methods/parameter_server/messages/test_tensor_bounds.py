"""From a schedule's alpha to the bounds of one message."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from testbed.worker.methods.parameter_server.bounds.error_bounds import RANGE, UPDATE
from testbed.worker.methods.parameter_server.messages.coder import Coder, Measured
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.tensor_bounds import bounds_of

WEIGHTS = ("0.weight", "1.weight", "2.weight")


@pytest.fixture
def coder() -> Coder:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 24), nn.Linear(24, 8))
    return Coder(Schema.of(model), Plan(direction="up", payload="delta", cutoff=10))


def _values(coder: Coder) -> list[torch.Tensor]:
    return [torch.linspace(-1, 1, item.numel).reshape(item.shape) for item in coder.schema.items]


def _rms(coder: Coder, by_name: dict[str, float]) -> list[float]:
    return [by_name.get(item.name, 9.0) for item in coder.schema.items]


def test_one_step_for_all_tensors_that_travel_lossy_but_those_that_have_not_changed(coder: Coder) -> None:
    rms = _rms(coder, {"0.weight": 0.04, "1.weight": 0.02, "2.weight": 0.0})
    measured = [Measured(one, -1.0, 1.0) for one in rms]
    bounds = bounds_of(coder, UPDATE, 0.5, measured, _values(coder))
    assert set(bounds) == set(WEIGHTS)
    pooled = math.sqrt((64 * 0.04**2 + 192 * 0.02**2) / (64 + 192 + 192))
    assert bounds["0.weight"] == bounds["1.weight"] == pytest.approx(math.sqrt(3) * 0.5 * pooled)
    assert bounds["2.weight"] is None
    told = bounds_of(coder, UPDATE, 0.5, measured, _values(coder), [2 * one for one in rms])
    assert told["0.weight"] == pytest.approx(2 * (bounds["0.weight"] or 0)), "of clients' updates, not of what is sent"


def test_a_share_of_the_range_is_each_tensors_own(coder: Coder) -> None:
    measured = [Measured(0.1, -1.0, 1.0 + at) for at in range(len(coder.schema.items))]
    bounds = bounds_of(coder, RANGE, 0.05, measured, _values(coder))
    places = [at for at, item in enumerate(coder.schema.items) if item.name in WEIGHTS]
    assert [bounds[name] for name in WEIGHTS] == pytest.approx([0.05 * (2.0 + at) for at in places])
