from __future__ import annotations

import pytest
import torch
from torch import nn

from testbed.worker.training.optimizers import LearningRate, leave_undecayed


def test_a_factor_multiplies_the_rate_that_is_there() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.4)
    rate = LearningRate(optimizer)
    for factor in (1.0, 0.25, 0.5):
        rate.set(factor)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4 * factor)
    optimizer.param_groups[0]["lr"] /= 10  # a schedule of somebody else
    rate.set(1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.04)


def test_parameters_that_do_not_decay_have_a_group_of_their_own_with_all_other_settings() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.8, 0.9), weight_decay=0.5)
    leave_undecayed(optimizer, model, ["1.weight"])
    decayed, left = optimizer.param_groups
    assert left["params"] == [model[1].weight] and left["weight_decay"] == 0.0
    assert len(decayed["params"]) == 3 and decayed["weight_decay"] == 0.5
    assert (left["lr"], left["betas"]) == (0.1, (0.8, 0.9))
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    leave_undecayed(plain, model, ["1.weight"])
    assert len(plain.param_groups) == 1
