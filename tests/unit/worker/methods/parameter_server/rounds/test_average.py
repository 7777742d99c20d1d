"""The mean of what clients have sent."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from compressors.base.payload import NonFiniteError
from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE, Schema
from testbed.worker.methods.parameter_server.rounds.average import Average
from tests.unit.worker.server_models import One, bits, net

WEIGHTS = {0: 30.0, 2: 7.0, 5: 63.0}


def _of_clients(schema: Schema, tensors: list[Tensor]) -> dict[int, list[Tensor]]:
    generator = torch.Generator().manual_seed(3)
    found = {}
    for client in WEIGHTS:
        found[client] = [
            value + client
            if item.kind == DISCRETE and value.dtype != torch.bool
            else value
            if not value.is_floating_point() or bool(value.isinf().any())
            else value + torch.rand(value.shape, generator=generator)
            for item, value in zip(schema.items, tensors, strict=True)
        ]
    return found


@pytest.mark.parametrize("expected", [(), (0, 2, 3, 5)], ids=["anybody", "expected"])
def test_the_mean_is_weighted_and_the_same_bits_in_any_order_of_arrival(expected: tuple[int, ...]) -> None:
    model = net()
    schema = Schema.of(model)
    sent = _of_clients(schema, schema.take(model))
    total = sum(WEIGHTS.values())
    first: list[bytes] | None = None
    for order in itertools.permutations(WEIGHTS):
        average = Average(schema, expected)
        for client in order:
            average.add(client, WEIGHTS[client], sent[client])
        mean = average.mean()
        first = first or bits(mean)
        assert bits(mean) == first, order
    for index, item in enumerate(schema.items):
        if item.kind == DISCRETE:
            assert torch.equal(mean[index], sent[5][index]), item.name
            continue
        wanted = sum(WEIGHTS[client] / total * sent[client][index].double() for client in WEIGHTS)
        torch.testing.assert_close(mean[index].double(), wanted, rtol=1e-6, atol=1e-7)
        assert mean[index].dtype == item.dtype
    assert average.weights == WEIGHTS


@pytest.mark.parametrize("expected", [(), (0, 1, 2)], ids=["anybody", "expected"])
def test_sums_do_not_depend_on_arrival_even_where_their_order_counts(expected: tuple[int, ...]) -> None:
    schema = Schema.of(One(torch.float64, (1, 1)))
    values = {0: 1.0, 1: 1e17, 2: -1e17}
    in_order = 1.0 + 1e17 - 1e17  # `sum` rounds once from Python 3.12 on
    assert in_order != 1e17 - 1e17 + 1.0, "else nothing is shown"
    for order in itertools.permutations(values):
        average = Average(schema, expected)
        for client in order:
            average.add(client, 1, [torch.tensor([[values[client]]], dtype=torch.float64)])
        assert float(average.mean()[0]) == in_order / 3


def test_of_equal_weights_the_lowest_number_has_what_is_discrete() -> None:
    model = nn.BatchNorm1d(2)
    schema = Schema.of(model)
    place = [item.name for item in schema.items].index("num_batches_tracked")
    for order in ((4, 1, 2), (2, 4, 1)):
        average = Average(schema)
        for client in order:
            tensors = schema.take(model)
            tensors[place] = torch.tensor(client)
            average.add(client, 8, tensors)
        assert average.mean()[place].tolist() == 1


def test_who_is_missing_is_not_in_it() -> None:
    schema = Schema.of(One())
    average = Average(schema, clients=(0, 1, 2))
    average.add(2, 3, [torch.full((40, 48), 4.0)])
    average.add(1, 1, [torch.full((40, 48), 8.0)])
    assert torch.equal(average.mean()[0], torch.full((40, 48), 5.0))
    with pytest.raises(RunError, match="nothing to average"):
        Average(schema, clients=(0, 1)).mean()


def test_halves_are_averaged_in_float32() -> None:
    schema = Schema.of(One(torch.bfloat16))
    average = Average(schema)
    average.add(0, 1, [torch.full((40, 48), 1.0, dtype=torch.bfloat16)])
    average.add(1, 1, [torch.full((40, 48), 1.0 + 2**-7, dtype=torch.bfloat16)])
    mean = average.mean()[0]
    assert mean.dtype == torch.float32 and bool((mean == 1.0 + 2**-8).all())


def test_what_makes_no_mean_is_refused() -> None:
    schema = Schema.of(One())
    tensors = [torch.zeros(40, 48)]
    average = Average(schema, clients=(0, 1))
    average.add(0, 1, tensors)
    for client, weight, found in ((0, 1, "has sent twice"), (7, 1, "is not expected"), (1, 0, "above 0")):
        with pytest.raises(ValueError, match=f"client {client}.*{found}"):
            average.add(client, weight, tensors)
    with pytest.raises(ValueError, match="client 1: weight has shape"):
        average.add(1, 1, [torch.zeros(1)])
    average.mean()
    with pytest.raises(ValueError, match="after the mean"):
        average.add(1, 1, tensors)


def test_infinite_buffers_have_a_mean_only_where_clients_agree() -> None:
    model = nn.Module()
    model.register_buffer("mask", torch.tensor([0.0, -math.inf]))
    schema = Schema.of(model)
    average = Average(schema)
    for client, sign in ((0, 1), (1, 1)):
        average.add(client, 1, [sign * model.mask])
    assert torch.equal(average.mean()[0], model.mask)
    average = Average(schema)
    for client, sign in ((0, 1), (1, -1)):
        average.add(client, 1, [sign * model.mask])
    with pytest.raises(NonFiniteError, match="mask: has no mean"):
        average.mean()
