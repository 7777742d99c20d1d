"""Clients one after another on a worker: what comes of them hangs on neither who runs them nor who was before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from testbed.worker.device.clock import PhaseClock
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.federated.aggregation.attacks import SignFlip
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import FederatedState
from testbed.worker.methods.federated.client_sequence import ClientSequence
from testbed.worker.methods.federated.clients.oort import statistical_utility
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.slowness import Slowness
from testbed.worker.methods.federated.local_client import LocalClient

SIZES = [6, 10, 4]
FEDAVG = Method(name="fedavg", server={}, learning_rate=0.1)


class Points:
    """A workload, as far as clients ask for one."""

    computes = True

    def __init__(self) -> None:
        self.seen: list[float] = []

    def picked(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(3)
        return torch.randn(30, 4, generator=generator)[numbers], torch.randn(30, 2, generator=generator)[numbers]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return self.sample_losses(model, batch).mean()

    def sample_losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        found = (model(batch[0]) - batch[1]).square().mean(1)
        self.seen += found.tolist()
        return found


class Worker:
    """One that runs the clients it is given, all at the same parameters."""

    def __init__(
        self, method: Method = FEDAVG, *, profile: object = None, utilities: bool = False, **given: Any
    ) -> None:
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        self.state = FederatedState(model, len(SIZES), variates=method.has_variates, utilities=utilities, limits=True)
        spec = SimpleNamespace(seed=0, batch_size=2, dilation=1.0)
        clock = PhaseClock()
        clock.times._profile = profile  # type: ignore[assignment]
        context = SimpleNamespace(spec=spec, clock=clock, prepare=lambda _: None)
        counts = iter(range(30))
        parts = [[next(counts) for _ in range(size)] for size in SIZES]
        population = Population(parts, batch_size=2, epochs=2, seed=0)
        self.points = Points()
        workload, shared = cast(NumberedWorkload, self.points), cast(WorkerContext, context)
        local = LocalClient(shared, workload, self.state, population, method, 1.0, Slowness(), has_utility=utilities)
        self.sequence = ClientSequence(0, self.state, population, method, local, **given)
        self.correction: Any = local.correction
        self.first = self.values()

    def values(self) -> list[Tensor]:
        return [one.detach().clone() for one in (*self.state.learning, *self.state.variates, *self.state.statistics)]

    def run(self, *clients: int) -> list[Tensor]:
        """What the parameters, variates and statistics become."""
        self.state.owners.fill_(-1)
        self.state.owners[list(clients)] = 0
        self.sequence.begin()
        self.sequence.step(None)
        return self.values()


def _changes(values: list[Tensor], worker: Worker) -> list[Tensor]:
    return [value - first for value, first in zip(values, worker.first, strict=True)]


def test_the_mean_of_three_is_that_of_each_alone_by_samples() -> None:
    together = Worker()
    found = together.run(0, 1, 2)
    alone = [Worker().run(client) for client in range(3)]
    for at, value in enumerate(found):
        expected = sum(size * one[at] for size, one in zip(SIZES, alone, strict=True)) / sum(SIZES)
        torch.testing.assert_close(value, expected)
    assert together.sequence.samples == sum(SIZES)
    assert (together.state.elapsed_s > 0).all() and (together.state.losses > 0).all()


def test_who_runs_none_changes_and_reports_nothing() -> None:
    worker = Worker()
    worker.run(1)
    before = worker.values()
    after = worker.run()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(before, after, strict=True))
    assert worker.sequence.samples == 0 and worker.sequence.step(None) is None
    assert not worker.state.elapsed_s.any()


def test_without_a_pull_fedprox_is_fedavg_to_the_bit_and_with_one_it_stays_nearer() -> None:
    plain = Worker().run(0, 1)
    prox = [Worker(Method(name="fedprox", server={}, mu=mu, learning_rate=0.1)) for mu in (0.0, 5.0)]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(plain, prox[0].run(0, 1), strict=True))
    moved = [float(torch.cat([one.flatten() for one in _changes(values, prox[1])]).norm()) for values in (plain,)]
    pulled = _changes(prox[1].run(0, 1), prox[1])[: len(prox[1].state.learning)]
    assert float(torch.cat([one.flatten() for one in pulled]).norm()) < moved[0]


def test_only_attackers_lie() -> None:
    honest, liars = Worker(), Worker(attack=SignFlip(scale=2), attackers=1)
    learning = len(honest.state.learning)
    for client, factor in ((0, -2.0), (2, 1.0)):
        told, meant = _changes(liars.run(client), liars), _changes(honest.run(client), honest)
        for ours, theirs in zip(told[:learning], meant[:learning], strict=True):
            torch.testing.assert_close(ours, factor * theirs, rtol=1e-4, atol=1e-5)
        for worker in (honest, liars):
            with torch.no_grad():
                for one, value in zip((*worker.state.learning, *worker.state.statistics), worker.first, strict=True):
                    one.copy_(value)


def test_scaffolds_variates_are_mean_gradients_and_what_is_sent_is_their_change() -> None:
    worker = Worker(Method(name="scaffold", server={}, learning_rate=0.1))
    learning, steps = len(worker.state.learning), 2 * SIZES[0] // 2
    changed = _changes(worker.run(0), worker)
    own = worker.correction.kept[0]
    for delta, sent, kept in zip(changed[:learning], changed[learning : 2 * learning], own, strict=True):
        torch.testing.assert_close(sent, -delta / (steps * 0.1), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(sent, kept, rtol=1e-4, atol=1e-6)
    again = worker.correction.kept[0]
    worker.run(0)
    assert not torch.equal(again[0], worker.correction.kept[0][0])
    assert set(worker.correction.kept) == {0}


@pytest.mark.parametrize("round_", [0, 1])
def test_another_round_has_another_order(round_: int) -> None:
    worker, late = Worker(), Worker()
    late.sequence.at(round_)
    same = all(torch.equal(ours, theirs) for ours, theirs in zip(worker.run(1), late.run(1), strict=True))
    assert same is (round_ == 0)


PROFILE = SimpleNamespace(forward_s=1e-4, backward_s=2e-4, optimizer_s=1e-4)
"""A client of 4 samples takes 2 epochs of 2 steps: 1.6 ms; of 10, 4."""


@pytest.mark.parametrize(("profile", "limit_s"), [(PROFILE, 0.0015), (PROFILE, 0.0001), (None, 1e-9)])
@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_a_client_that_is_cut_leaves_nothing_but_its_time(name: str, profile: object, limit_s: float) -> None:
    method = Method(name=name, server={}, learning_rate=0.1)
    worker, other = Worker(method, profile=profile), Worker(method, profile=profile)
    assert worker.state.limits_s is not None
    worker.state.limits_s[1] = limit_s
    found = worker.run(0, 1, 2)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, other.run(0, 2), strict=True))
    assert worker.sequence.samples == SIZES[0] + SIZES[2]
    assert worker.state.elapsed_s[1] == -limit_s and worker.state.losses[1] == 0
    assert name == "fedavg" or set(worker.correction.kept) == {0, 2}
    alone = Worker(method, profile=profile)
    assert alone.state.limits_s is not None
    alone.state.limits_s[1] = limit_s
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(alone.run(1), alone.first, strict=True))
    assert alone.sequence.samples == 0 and alone.sequence.step(None) is None


def test_who_is_done_just_in_time_counts() -> None:
    worker = Worker(profile=PROFILE)
    assert worker.state.limits_s is not None
    worker.run(2)
    took_s = float(worker.state.elapsed_s[2])
    assert took_s == pytest.approx(0.0016)
    for limit_s, samples in ((took_s, SIZES[2]), (took_s - 1e-12, 0)):
        worker.state.limits_s[2] = limit_s
        worker.run(2)
        assert worker.sequence.samples == samples


def test_utilities_are_of_all_samples_of_all_batches_and_change_nothing() -> None:
    worker, plain = Worker(utilities=True), Worker()
    found = worker.run(1)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, plain.run(1), strict=True))
    assert worker.state.utilities is not None and plain.state.utilities is None
    assert len(worker.points.seen) == 2 * SIZES[1]
    assert float(worker.state.utilities[1]) == pytest.approx(statistical_utility(worker.points.seen))
    worker.run(0)
    assert float(worker.state.utilities[1]) == 0
    assert float(worker.state.utilities[0]) == pytest.approx(statistical_utility(worker.points.seen[2 * SIZES[1] :]))
