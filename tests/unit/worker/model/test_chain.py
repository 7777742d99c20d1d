from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from testbed.worker.model.activation_cache import ActivationCache
from testbed.worker.model.chain import Chain
from tests.unit.worker.chained import LAYERS, WIDTH, chain, inputs, loss, picked


def test_a_frozen_prefix_gives_the_same_output_and_has_no_gradient() -> None:
    model, batch = chain(), picked(torch.arange(10))
    before = model(batch.inputs)
    model.freeze(2)
    torch.testing.assert_close(model(batch.inputs), before, rtol=0, atol=0)
    loss(model, batch).backward()
    frozen = [*model.embedding.parameters(), *model.layers[0].parameters(), *model.layers[1].parameters()]
    assert not any(p.requires_grad for p in frozen) and all(p.grad is None for p in frozen)
    active = [*model.layers[2].parameters(), *model.readout.parameters()]
    assert all(p.grad is not None for p in active)


def test_gradients_of_what_is_active_are_those_of_the_whole_model() -> None:
    model, batch = chain(), picked(torch.arange(10))
    other = copy.deepcopy(model)
    other.freeze(3)
    for one in (model, other):
        loss(one, batch).backward()
    for name, parameter in other.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, model.get_parameter(name).grad, rtol=0, atol=0)


def test_all_layers_may_freeze_and_none_is_thawed() -> None:
    model = chain()
    assert model.frozen == 0 and model.prefix() == []
    model.freeze(LAYERS)
    assert {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad} == {"readout"}
    for layers in (LAYERS - 1, LAYERS + 1):
        with pytest.raises(ValueError, match=f"layers={layers}: 5 of 5 are frozen"):
            model.freeze(layers)


def test_what_is_frozen_stays_in_evaluation_mode() -> None:
    model = Chain(nn.Linear(3, WIDTH), [nn.Dropout(0.5), nn.Dropout(0.5)], nn.Linear(WIDTH, 2))
    model.freeze(1)
    assert model.train().training and model.layers[1].training and not model.layers[0].training


def test_pieces_one_after_another_are_the_model() -> None:
    model, hidden = chain(), inputs()
    model.freeze(2)
    assert len(model.pieces()) == LAYERS + 2 and model.prefix() == model.pieces()[:3]
    for piece in model.pieces():
        hidden = piece(hidden)
    torch.testing.assert_close(hidden, model(inputs()), rtol=0, atol=0)


def test_a_copy_has_an_empty_cache_of_its_own() -> None:
    model, batch = chain(), picked(torch.arange(10))
    model.cache = ActivationCache(10**6)
    model.freeze(2)
    model(batch.inputs, batch.numbers)
    twin = copy.deepcopy(model)
    assert len(model.cache) == 10
    assert twin.cache is not None and len(twin.cache) == 0 and twin.cache.capacity_bytes == 10**6
    model(batch.inputs)  # as an evaluation does: without numbers nothing is looked up
    assert model.cache.take_counts().none == 10
