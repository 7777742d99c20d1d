"""transform=freeze, of one rank: when it freezes what, what its cache finds, and what becomes of times."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from testbed.core.device.profile import LayerTimes, Profile
from testbed.core.errors import InputError
from testbed.core.record.events.base import StepEvent
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.interfaces.transform import TransformContext
from testbed.worker.model.layers import layer_names, layer_sizes
from testbed.worker.transforms.freeze import Freeze
from testbed.worker.workloads.tiny_vit import TinyVit
from tests.unit.worker.chained import LAYERS, SAMPLES, chain, loss, picked
from tests.unit.worker.recorded import Recorded

EPOCH, STEPS = 4, 30


def bound(
    transform: Freeze,
    model: nn.Module,
    epoch_steps: int | None = EPOCH,
    *,
    record: Callable[[StepEvent], None] = lambda _: None,
) -> Freeze:
    comm = Communicator(0, 1, 10.0)
    transform.begin(model, 0)
    transform.bind(
        TransformContext(
            model=model,
            comm=comm,
            steps=STEPS,
            epoch_steps=epoch_steps,
            loss=lambda one: loss(one, picked(torch.arange(4))),
            record=record,
        )
    )
    return transform


def trained(**given: Any) -> tuple[list[float], list[dict[str, Any]], nn.Module]:
    """Losses of a training as the loop does it, what was told, and the model in the end."""
    model, told, losses = chain(), [], []
    recorded = Recorded()
    transform = bound(Freeze(**given), model, record=recorded)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    transform.attach(model, optimizer)
    order = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        if step % EPOCH == 0:
            epoch = torch.randperm(SAMPLES, generator=order).split(SAMPLES // EPOCH)
        optimizer.zero_grad()
        value = loss(model, picked(epoch[step % EPOCH]))
        value.backward()
        optimizer.step()
        losses.append(value.item())
        plan = transform.plan_after(model, step) if transform.looks_after(step) else None
        if plan is not None:
            model = copy.deepcopy(model)
            told.append(transform.switch(model, plan, step).to_json())
            optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1, 0.9)
            transform.attach(model, optimizer)
        told += recorded.take()
    return losses, told, model


def test_layers_freeze_by_the_schedule_after_each_epoch() -> None:
    _, told, model = trained(alpha=1 / 2)
    assert [(note["epoch"], note["frozen"]) for note in told] == [(1, 3), (2, 4), (3, 5)]
    assert {note["layers"] for note in told} == {LAYERS} and told[0]["gradient_norms"] is None
    assert told[0]["parameters"] < told[0]["parameters_before"] == sum(p.numel() for p in model.parameters())
    assert told[1]["parameters_before"] == told[0]["parameters"]


def test_with_a_cache_losses_are_those_without() -> None:
    plain, _, model = trained(alpha=1 / 3)
    cached, told, other = trained(alpha=1 / 3, cache="1 MB")
    assert cached == pytest.approx(plain, rel=1e-6)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    found = [(note["epoch"], note["whole"], note["part"], note["none"]) for note in told if note["event"] == "cache"]
    # frozen after epochs 1 to 5: 2, 3, 4, 5, 5 layers; the last epoch is a half one
    assert found == [
        (2, 0, 0, 40),
        (3, 0, 40, 0),
        (4, 0, 40, 0),
        (5, 0, 40, 0),
        (6, 40, 0, 0),
        (7, 40, 0, 0),
        (8, 20, 0, 0),
    ]


def test_few_frozen_layers_may_be_left_out_of_the_cache() -> None:
    _, told, _ = trained(alpha=1 / 3, cache="1 MB", cache_from=4)
    assert [note["epoch"] for note in told if note["event"] == "cache"] == [4, 5, 6, 7, 8]


def test_by_gradients_norms_are_told_and_nothing_that_is_frozen_has_one() -> None:
    _, told, _ = trained(policy="grad_norm", alpha=1 / 2)
    assert told, "at least one layer has frozen"
    for note, before in zip(told, [0, *(note["frozen"] for note in told)], strict=False):
        norms = note["gradient_norms"]
        assert len(norms) == LAYERS and all(norm == 0 for norm in norms[:before])
        quietest = before + norms[before:].index(min(norms[before:]))
        assert before < note["frozen"] <= quietest


def test_norms_are_of_all_gradients_of_an_epoch() -> None:
    model = chain()
    transform = bound(Freeze(policy="grad_norm"), model)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    transform.attach(model, optimizer)
    squares = torch.zeros(LAYERS, dtype=torch.float64)
    for step in range(EPOCH):
        optimizer.zero_grad()
        loss(model, picked(torch.arange(step, step + 8))).backward()
        for place, layer in enumerate(model.layers):
            squares[place] += sum(p.grad.double().square().sum() for p in layer.parameters() if p.grad is not None)
        optimizer.step()
    plan = transform.plan_after(model, EPOCH - 1)
    quietest = int(squares.argmin())
    assert plan == (min(2, quietest) or None)
    note = transform.switch(model, 2, EPOCH - 1).to_json()
    assert note["gradient_norms"] == pytest.approx(squares.sqrt().tolist())


def test_forward_of_what_is_cached_takes_no_time() -> None:
    model = chain()
    transform = bound(Freeze(cache="1 MB"), model)
    batch = picked(torch.arange(8))
    assert transform.spared(batch) == {}
    transform._found = {"epoch": 1, "layers": LAYERS, "gradient_norms": None}
    transform.switch(model, 2, EPOCH - 1)
    assert set(transform.spared(batch).values()) == {0.0}
    model(batch.inputs[:6], batch.numbers[:6])
    spared = transform.spared(batch)
    assert set(spared.values()) == {0.75}
    assert set(spared) == {"embedding"} | {
        name for name in layer_names(model) if name.startswith(("layers.0.", "layers.1."))
    }
    sizes = layer_sizes(model)
    layers = tuple(
        LayerTimes(name=name, parameters=size, forward_s=0.1, backward_s=0.2, forward_flop=1.0)
        for name, size in sizes.items()
    )
    known = Profile(
        workload="w",
        compressor="c",
        batch_size=8,
        layers=layers,
        forward_s=0.1 * len(layers) + 1,
        backward_s=1.0,
        optimizer_s=0.0,
    )
    times = ComputeTimes(known, model)
    times.spare(spared)
    assert times.forward_s == pytest.approx(known.forward_s - 0.75 * 0.1 * len(spared))
    times.spare({})
    assert times.forward_s == known.forward_s


def test_an_example_has_frozen_what_ever_may_be() -> None:
    for keep, expected in ((0, LAYERS), (2, LAYERS - 2)):
        model = chain()
        Freeze(keep=keep).example(model)
        assert model.frozen == expected


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="policy=x: unknown") as caught:
        Freeze(policy="x", alpha=0, keep=-1, epoch_steps=0, cache="much", cache_from=0)
    for line in ("alpha=0", "keep=-1", "epoch_steps=0", "cache=much", "cache_from=0"):
        assert line in str(caught.value)
    with pytest.raises(ValueError, match="cache=0 B: must be above 0"):
        Freeze(cache="0 B")
    with pytest.raises(InputError, match="no chain of layers"):
        Freeze().begin(nn.Linear(2, 2), 0)
    with pytest.raises(InputError, match="keep=6: the model has 5 layers"):
        Freeze(keep=6).begin(chain(), 0)
    with pytest.raises(InputError, match="epoch_steps=null: the strategy has no epochs"):
        bound(Freeze(), chain(), epoch_steps=None)
    (fault,) = Freeze(epoch_steps=30).validate(30)
    assert fault.startswith("epoch_steps=30: ")
    assert list(Freeze(epoch_steps=29).validate(30)) == list(Freeze(policy="none", epoch_steps=30).validate(30)) == []


def test_a_cache_and_random_shifts_do_not_go_together() -> None:
    shifting = TinyVit(augment=2)
    (fault,) = Freeze(cache="1 MB").misfits(shifting)
    assert "augment" in fault
    assert list(Freeze().misfits(shifting)) == list(Freeze(cache="1 MB").misfits(TinyVit())) == []
