"""What of a model a parameter server exchanges."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from testbed.core.errors import InputError, RunError
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE, PARAMETER, STATISTIC, Schema
from tests.unit.worker.server_models import One, bits, net


def test_a_state_is_listed_by_name_with_tied_weights_once() -> None:
    schema = Schema.of(net())
    kinds = {item.name: item.kind for item in schema.items}
    assert list(kinds) == sorted(kinds)
    assert schema.ties == (("head.weight", "embedding.weight"),)
    assert {name for name, kind in kinds.items() if kind == PARAMETER} == {
        *("embedding.weight", "head.bias", "scale"),
        *("convolution.weight", "convolution.bias", "norm.weight", "norm.bias"),
    }
    assert {name for name, kind in kinds.items() if kind == STATISTIC} == {
        *("norm.running_mean", "norm.running_var", "mask", "empty")
    }
    assert {name for name, kind in kinds.items() if kind == DISCRETE} == {
        *("norm.num_batches_tracked", "steps", "order", "shown")
    }
    assert ("steps", (), "int64") in schema.listed()
    assert ("embedding.weight", (60, 40), "float32") in schema.listed()


def test_what_was_taken_can_be_put_and_ties_hold() -> None:
    model = net()
    schema = Schema.of(model)
    taken = schema.take(model)
    before = bits(taken)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for tensor in (*other.parameters(), *other.buffers()):
            tensor.copy_(torch.zeros_like(tensor))
    assert bits(taken) == before, "a copy"
    schema.put(other, taken)
    assert bits(schema.take(other)) == before
    assert other.head.weight is other.embedding.weight and bool(other.head.weight.any())


def test_what_does_not_learn_does_not_travel_but_for_buffers() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[0].weight.requires_grad_(False)
    schema = Schema.of(model)
    assert {item.name for item in schema.items} == {
        *("0.bias", "1.weight", "1.bias"),
        *("1.running_mean", "1.running_var", "1.num_batches_tracked"),
    }
    schema.put(model, [torch.ones(item.shape).to(item.dtype) for item in schema.items])
    assert not torch.equal(model[0].weight, torch.ones(2, 3)) and torch.equal(model[0].bias, torch.ones(2))
    model[0].weight.requires_grad_(True)
    with pytest.raises(RunError, match=r"0\.weight changed"):
        schema.take(model)


def test_halves_change_in_float32_and_all_else_is_replaced() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(torch.bfloat16)
    schema = Schema.of(model)
    for payload, dtype in (("params", "bfloat16"), ("delta", "float32"), ("grad", "float32")):
        assert ("0.weight", (2, 3), dtype) in schema.listed(payload)
        assert ("1.running_var", (2,), "bfloat16") in schema.listed(payload)
    before = schema.take(model)
    after = [value + 1 for value in before]
    change = schema.delta(after, before)
    moved = schema.moved(before, change)
    for item, old, new, difference, result in zip(schema.items, before, after, change, moved, strict=True):
        if item.kind == PARAMETER:
            assert difference.dtype == result.dtype == torch.float32
            assert torch.equal(difference, new.float() - old.float())
            assert torch.equal(result, old.float() + difference)
        else:
            assert difference is new and result is new


def test_a_state_that_cannot_travel_is_refused_with_all_that_is_wrong() -> None:
    model = nn.Module()
    model.register_buffer("spectrum", torch.zeros(2, dtype=torch.complex64))
    model.register_buffer("graph", torch.eye(2).to_sparse())
    model.late = nn.LazyLinear(3)
    with pytest.raises(InputError) as caught:
        Schema.of(model)
    told = str(caught.value)
    assert "spectrum: is of torch.complex64" in told and "graph: is of torch.sparse_coo" in told
    assert "late.weight: has no shape yet" in told


def test_another_model_or_other_shapes_are_refused_by_name() -> None:
    schema = Schema.of(One())
    with pytest.raises(RunError, match="weight changed"):
        schema.take(One(shape=(40, 49)))
    with pytest.raises(ValueError, match=r"weight has shape \[40, 48\], found \[48\]"):
        schema.put(One(), [torch.zeros(48)])
    with pytest.raises(ValueError, match="2 tensors for 1 items"):
        schema.put(One(), [torch.zeros(40, 48)] * 2)
