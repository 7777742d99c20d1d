from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from torch import nn

from testbed.worker.training.optimizers import Optimizers, carry_state
from testbed.worker.transforms.freeze import Freeze
from testbed.worker.transforms.none import Unchanged
from tests.unit.worker.chained import chain, loss, picked

ADAM = {"lr": 0.01, "betas": (0.9, 0.98)}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, times: int = 3) -> None:
    for _ in range(times):
        optimizer.zero_grad()
        loss(model, picked(torch.arange(20))).backward()
        optimizer.step()


def learning(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


@pytest.mark.parametrize("make", [lambda ps: torch.optim.AdamW(ps, **ADAM), lambda ps: torch.optim.SGD(ps, 0.1, 0.9)])
def test_what_goes_on_learning_is_as_if_nothing_had_happened(make: Any) -> None:
    """The optimizer of a copy, of which nothing is frozen, takes the very steps of the one it came from."""
    model = chain()
    optimizer = make(model.parameters())
    step(model, optimizer)
    twin = copy.deepcopy(model)
    other = make(twin.parameters())
    carried = carry_state(optimizer, other, dict(zip(twin.parameters(), model.parameters(), strict=True)))
    assert carried == len(list(model.parameters()))
    for one in ((model, optimizer), (twin, other)):
        step(*one, times=2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_frozen_parameters_leave_their_state_behind_and_the_old_one_is_not_touched() -> None:
    model = chain()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)  # type: ignore[arg-type]
    step(model, optimizer)
    twin = copy.deepcopy(model)
    twin.freeze(2)
    other = torch.optim.AdamW(learning(twin), **ADAM)  # type: ignore[arg-type]
    origin = dict(zip(twin.parameters(), model.parameters(), strict=True))
    assert carry_state(optimizer, other, origin) == len(learning(twin)) == len(other.state)
    kept = copy.deepcopy(optimizer.state_dict())
    step(twin, other)
    now = optimizer.state_dict()["state"]
    assert all(torch.equal(now[at]["exp_avg"], one["exp_avg"]) for at, one in kept["state"].items())


def test_what_is_unknown_begins_anew_and_what_cannot_go_on_is_refused() -> None:
    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4))
    old, new = torch.optim.SGD([a], 0.1, 0.9), torch.optim.SGD([b], 0.1, 0.9)
    assert carry_state(old, new, {b: a}) == 0, "it has taken no step"
    a.grad = torch.ones(3)
    old.step()
    assert carry_state(old, new, {}) == 0
    with pytest.raises(ValueError, match=r"shape \[3\] cannot go on as \[4\]"):
        carry_state(old, new, {b: a})
    with pytest.raises(ValueError, match="AdamW cannot go on with what SGD keeps"):
        carry_state(old, torch.optim.AdamW([b]), {b: a})


@pytest.mark.parametrize(("transform", "carried"), [(Freeze(), True), (Unchanged(), False)])
def test_optimizers_go_on_where_parameters_are_the_same_ones(transform: Any, carried: bool) -> None:
    model = chain()
    before = Optimizers(transform, model)
    parts = list(model.parameters())
    # several of them, as a strategy may have one for each bucket, in other groups than afterwards
    optimizers = [torch.optim.SGD(parts[:7], 0.1, 0.9), torch.optim.SGD(parts[7:], 0.1, 0.9)]
    for optimizer in optimizers:
        before.prepare(optimizer)
    loss(model, picked(torch.arange(20))).backward()
    for optimizer in optimizers:
        optimizer.step()
    held = before.held()
    twin = copy.deepcopy(model)
    after = Optimizers(transform, twin)
    one = torch.optim.SGD(twin.parameters(), 0.1, 0.9)
    after.prepare(one)
    after.carry(held)
    assert len(one.state) == (len(parts) if carried else 0)


def test_an_optimizer_that_nobody_has_is_forgotten_and_one_that_takes_no_step_has_no_say() -> None:
    model = chain()
    found = Optimizers(Unchanged(), model)
    idle = torch.optim.SGD(model.parameters(), 0.1)
    found.prepare(idle)
    assert found.held().optimizers == []
    idle.step()
    assert found.held().optimizers == [idle]
    del idle
    gc.collect()
    assert found.held().optimizers == []
