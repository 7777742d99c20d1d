"""What clients add to their gradients: told by hand, and where it leads on quadratic losses."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from testbed.worker.methods.federated.aggregation.corrections import (
    dynamic,
    dynamic_memory,
    proximal,
    scaffold_drift,
    scaffold_variate,
)
from testbed.worker.methods.federated.aggregation.fold import Update
from testbed.worker.methods.federated.aggregation.rules import FedAvg, FedDyn, Rule, Scaffold


def _one(*values: float) -> list[Tensor]:
    return [torch.tensor(values, dtype=torch.float64)]


def _flat(tensors: list[Tensor]) -> list[float]:
    return [float(value) for tensor in tensors for value in tensor]


def test_corrections_told_by_hand() -> None:
    began, values = _one(1.0, 2.0), _one(3.0, 1.5)
    assert _flat(proximal(values, began, 0.5)) == [1.0, -0.25]
    assert _flat(proximal(values, began, 0)) == [0.0, 0.0]
    assert _flat(scaffold_drift(_one(0.5), _one(2.0))) == [-1.5]
    # c_i - c + (x - y) / (4 * 0.5)
    after = scaffold_variate(_one(1.0, 1.0), _one(0.25, 0.5), began, values, steps=4, learning_rate=0.5)
    assert _flat(after) == [1 - 0.25 - 1.0, 1 - 0.5 + 0.25]
    assert _flat(dynamic(values, began, _one(0.5, -0.5), 2.0)) == [2 * 2 - 0.5, -2 * 0.5 + 0.5]
    assert _flat(dynamic_memory(values, began, _one(0.5, -0.5), 2.0)) == [0.5 - 2 * 2, -0.5 + 2 * 0.5]


def test_the_proximal_term_is_the_gradient_of_half_mu_times_the_square() -> None:
    w = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    began = torch.tensor([0.5, 1.0, 0.0], dtype=torch.float64)
    (0.3 / 2 * (w - began).square().sum()).backward()
    assert w.grad is not None
    torch.testing.assert_close(proximal([w.detach()], [began], 0.3), [w.grad])


def test_autograd_sees_nothing_of_corrections() -> None:
    one = [torch.ones(2, requires_grad=True)]
    for found in (
        proximal(one, one, 0.5),
        scaffold_drift(one, one),
        scaffold_variate(one, one, one, one, steps=1, learning_rate=0.5),
        dynamic(one, one, one, 0.5),
        dynamic_memory(one, one, one, 0.5),
    ):
        assert not found[0].requires_grad


def test_bad_numbers_are_refused() -> None:
    for mu in (-1, math.inf):
        with pytest.raises(ValueError, match=f"mu={mu}"):
            proximal(_one(1.0), _one(1.0), mu)
    with pytest.raises(ValueError, match=r"(?s)steps=0: .*\nlearning_rate=0: "):
        scaffold_variate(*([_one(1.0)] * 4), steps=0, learning_rate=0)
    for function in (dynamic, dynamic_memory):
        with pytest.raises(ValueError, match="alpha=0"):
            function(_one(1.0), _one(1.0), _one(1.0), 0)


# Losses k/2 (w - a)² of three clients; all together are least at sum(k a) / sum(k) = 0.4.
CURVED = {0: (0.2, -3.0), 1: (1.0, 1.0), 2: (0.8, 0.5)}
OPTIMUM = 0.4
RATE, STEPS = 0.2, 10


def _steps(client: int, began: Tensor, extra: Callable[[Tensor], Tensor], count: int = STEPS) -> Tensor:
    curvature, least = CURVED[client]
    w = began.clone()
    for _ in range(count):
        w = w - RATE * (curvature * (w - least) + extra(w))
    return w


def _nothing(w: Tensor) -> Tensor:
    return torch.zeros_like(w)


def test_fedprox_without_mu_is_fedavg_and_with_much_of_it_nearly_stands_still() -> None:
    began = _one(2.0)[0]
    plain = _steps(1, began, _nothing)
    ends = [_steps(1, began, lambda w, mu=mu: proximal([w], [began], mu)[0]) for mu in (0.0, 0.5, 4.0)]
    assert torch.equal(ends[0], plain)
    moved = [float((end - began).abs()) for end in ends]
    assert moved[0] > moved[1] > moved[2] > 0


def _play(rule: Rule, rounds: int, client: Callable[[int, Tensor], list[Tensor]], fewer: bool = False) -> float:
    w = _one(2.0)[0]
    for round_ in range(rounds):
        chosen = [c for c in CURVED if not fewer or c != round_ % 3]
        w = w + rule.round([Update(client=c, delta=client(c, w)) for c in chosen])[0]
    return float(w)


@pytest.mark.tier("all")
def test_fedavg_misses_the_optimum_that_scaffold_and_feddyn_find() -> None:
    missed = _play(FedAvg(), 300, lambda client, began: [_steps(client, began, _nothing) - began])
    assert abs(missed - OPTIMUM) > 0.05

    variates = {client: _one(0.0) for client in CURVED}
    scaffold = Scaffold(clients=3)

    def controlled(client: int, began: Tensor) -> list[Tensor]:
        c, own = scaffold.variate or _one(0.0), variates[client]
        drift = scaffold_drift(c, own)[0]
        w = _steps(client, began, lambda w: drift)
        variates[client] = scaffold_variate(own, c, [began], [w], steps=STEPS, learning_rate=RATE)
        return [w - began, variates[client][0] - own[0]]

    assert _play(scaffold, 300, controlled, fewer=True) == pytest.approx(OPTIMUM, abs=1e-6)
    # the server's is the mean of all clients', also with some left out; each is its gradient at the optimum
    torch.testing.assert_close(sum(own[0] for own in variates.values()) / 3, scaffold.variate[0])
    for client, (curvature, least) in CURVED.items():
        assert float(variates[client][0]) == pytest.approx(curvature * (OPTIMUM - least), abs=1e-5)

    memories = {client: _one(0.0) for client in CURVED}

    def regularised(client: int, began: Tensor) -> list[Tensor]:
        kept = memories[client]
        w = _steps(client, began, lambda w: dynamic([w], [began], kept, 0.5)[0], 200)
        memories[client] = dynamic_memory([w], [began], kept, 0.5)
        return [w - began]

    assert _play(FedDyn(clients=3, alpha=0.5), 100, regularised) == pytest.approx(OPTIMUM, abs=1e-6)
    for client, (curvature, least) in CURVED.items():
        assert float(memories[client][0]) == pytest.approx(curvature * (OPTIMUM - least), abs=1e-5)


def test_a_control_variate_is_the_mean_of_the_rounds_gradients() -> None:
    gradients: list[Tensor] = []
    own, server, began = _one(0.7), _one(-0.3), _one(2.0)
    curvature, least = CURVED[1]
    w = began[0]
    for _ in range(STEPS):
        gradients.append(curvature * (w - least))
        w = w - RATE * (gradients[-1] + scaffold_drift(server, own)[0])
    after = scaffold_variate(own, server, began, [w], steps=STEPS, learning_rate=RATE)
    torch.testing.assert_close(after[0], torch.stack(gradients).mean(dim=0))
