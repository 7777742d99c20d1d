"""What a server makes of its workers' sums: the same as of all their clients' updates, one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from testbed.core.errors import RunError
from testbed.worker.methods.federated.aggregation.fold import Update
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.robust import Defence, Krum, Median
from testbed.worker.methods.federated.aggregation.state import FederatedState
from testbed.worker.methods.federated.clients.oort import Oort
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.sampling import Sampling
from testbed.worker.methods.federated.deadline import RoundDeadline
from testbed.worker.methods.federated.fleet import EmptyRound, Fleet
from testbed.worker.methods.federated.server_model import FederatedModel, Federation, Gathered, Places
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.transport.frame_errors import Refused
from tests.unit.worker.recorded import Recorded, taken

SIZES = [3, 9, 4, 7, 5]
WORKERS = 2


class Played:
    """A server, and what its workers would send."""

    def __init__(
        self,
        method: Method,
        *,
        defence: Defence | None = None,
        workers: int = WORKERS,
        deadline: RoundDeadline | None = None,
        selection: Oort | None = None,
    ) -> None:
        torch.manual_seed(1)
        self.method, self.workers = method, workers
        self.state = FederatedState(
            nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)),
            len(SIZES),
            variates=method.has_variates,
            utilities=selection is not None,
            limits=deadline is not None,
        )
        self.schema = Schema.of(self.state)
        counts = iter(range(100))
        parts = [[next(counts) for _ in range(size)] for size in SIZES]
        self.population = Population(parts, batch_size=4, epochs=1, seed=0)
        given: dict[str, Any] = {"stays": method.remembers, "one_each": defence is not None}
        given |= {"deadline": deadline, "selection": selection}
        chosen = Sampling(count=workers if defence else len(SIZES))
        given |= {"record": Recorded()}
        self.fleet = Fleet(self.population, method, chosen, workers=workers, placement="longest_first", **given)
        self.rule = method.rule(len(SIZES))
        federation = Federation(self.state, self.fleet, self.rule, defence)
        optimizer = torch.optim.SGD(self.state.parameters(), lr=1.0)
        model = federation.model(self.state, self.schema, "delta", optimizer, lambda: range(workers))
        assert isinstance(model, FederatedModel)
        self.federation, self.model, self.places = federation, model, Places(self.schema, self.state)

    @property
    def changing(self) -> list[int]:
        return [*self.places.learning, *self.places.variates]

    def updates(self) -> list[Update]:
        """Of all clients of the round, drawn at random."""
        generator = torch.Generator().manual_seed(5)
        return [
            Update(
                client=client,
                weight=SIZES[client],
                steps=self.method.effective_steps(self.population.steps(client)),
                delta=[torch.randn(self.schema.items[at].shape, generator=generator) for at in self.changing],
            )
            for client, owner in enumerate(self.fleet.owners)
            if owner >= 0
        ]

    def message(self, worker: int, updates: list[Update]) -> list[Tensor]:
        """What that worker makes of its clients'."""
        own = [one for one in updates if self.fleet.owners[one.client] == worker]
        sent = [value.clone() for value in self.model.values]
        elapsed = torch.zeros(len(SIZES), dtype=torch.float64)
        factors = [self.rule.weighting.factor(one) for one in own]
        for number, at in enumerate(self.changing):
            each = [factor * one.delta[number].double() for factor, one in zip(factors, own, strict=True)]
            total = sum(each, torch.zeros(self.schema.items[at].shape, dtype=torch.float64))
            sent[at] = (total / sum(factors) if own else total).float()
        for one in own:
            elapsed[one.client] = 1.0 + one.client
        sent[self.places.elapsed_s] = elapsed
        return sent

    def gathered(self, order: list[int], updates: list[Update]) -> Gathered:
        mean = self.federation.mean(self.schema, range(self.workers))
        assert isinstance(mean, Gathered)
        for worker in order:
            mean.add(worker, 1.0, self.message(worker, updates))
        return mean


@pytest.mark.parametrize(
    "method",
    [
        Method(name="fedavg", server={}),
        Method(name="fedavgm", server={"momentum": 0.5}),
        Method(name="fednova", server={}, learning_rate=0.1, momentum=0.3),
        Method(name="scaffold", server={"learning_rate": 0.5}, learning_rate=0.1),
        Method(name="feddyn", server={}, alpha=0.2, learning_rate=0.1),
        Method(name="fedyogi", server={}),
    ],
    ids=lambda method: method.name,
)
def test_workers_sums_move_the_model_as_all_clients_would(method: Method) -> None:
    played, flat = Played(method), method.rule(len(SIZES))
    for _ in range(2):
        played.model.begin()
        before, updates = played.model.values, played.updates()
        mean = played.gathered(list(range(WORKERS)), updates).mean()
        played.model.move(mean, before)
        steps = flat.round(updates)
        for at, step in zip(played.places.learning, steps, strict=True):
            torch.testing.assert_close(played.model.values[at], (before[at].double() + step).float())
        variates = getattr(flat, "variate", [])
        for at, variate in zip(played.places.variates, variates, strict=True):
            torch.testing.assert_close(played.model.values[at], variate.float())
            assert played.model.values[at].any()
    assert len(taken(played.fleet)) == 2 and taken(played.fleet) == []


def test_the_order_in_which_workers_come_changes_no_bit() -> None:
    both = []
    for order in ([0, 1], [1, 0]):
        played = Played(Method(name="fedavg", server={}))
        played.model.begin()
        both.append(played.gathered(order, played.updates()).mean())
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*both, strict=True))


def test_statistics_are_means_by_samples_and_counters_the_largest_clients() -> None:
    played = Played(Method(name="fedavg", server={}))
    played.model.begin()
    updates, names = played.updates(), [item.name for item in played.schema.items]
    mean, weights = played.federation.mean(played.schema, range(WORKERS)), []
    for worker in range(WORKERS):
        message = played.message(worker, updates)
        message[names.index("model.1.running_mean")] = torch.full((2,), float(worker))
        message[names.index("model.1.num_batches_tracked")] = torch.tensor(10 + worker)
        weights.append(sum(SIZES[one.client] for one in updates if played.fleet.owners[one.client] == worker))
        mean.add(worker, 1.0, message)
    found = mean.mean()
    expected = weights[1] / sum(weights)
    torch.testing.assert_close(found[names.index("model.1.running_mean")], torch.full((2,), expected))
    largest = played.fleet.owners[SIZES.index(max(SIZES))]
    assert int(found[names.index("model.1.num_batches_tracked")]) == 10 + largest


def test_a_worker_that_is_lost_takes_its_clients_out_of_the_mean() -> None:
    played = Played(Method(name="fedavg", server={}))
    played.model.begin()
    updates = played.updates()
    mean = played.gathered([1], updates).mean()
    steps = played.method.rule(len(SIZES)).round([one for one in updates if played.fleet.owners[one.client] == 1])
    for at, step in zip(played.places.learning, steps, strict=True):
        torch.testing.assert_close(mean[at], step, rtol=1e-5, atol=1e-6)


def test_a_round_of_which_nothing_comes_is_told_and_moves_nothing() -> None:
    played = Played(Method(name="fedavgm", server={"momentum": 0.9}))
    played.model.begin()
    before = played.model.values
    with pytest.raises(EmptyRound):
        played.gathered([], played.updates()).mean()
    assert played.model.values is before and played.rule.state_dict() == {"momenta": []}
    (note,) = taken(played.fleet)
    assert (note["round"], note["asked"], note["came"]) == (0, len(SIZES), 0)


def test_limits_go_down_what_workers_say_comes_up_and_neither_is_averaged() -> None:
    selection = Oort(clip=1.0).of_run(3, 0)
    played = Played(Method(name="fedavg", server={}), deadline=RoundDeadline(deadline_s=4.5), selection=selection)
    played.model.begin()
    places, updates = played.places, played.updates()
    assert places.limits_s is not None and places.utilities is not None and len(updates) == 3
    expected = [4.5 if owner >= 0 else math.inf for owner in played.fleet.owners]
    assert played.model.values[places.limits_s].tolist() == expected
    late, *others = [one.client for one in updates]
    mean = played.federation.mean(played.schema, range(WORKERS))
    for worker in range(WORKERS):
        message = played.message(worker, [one for one in updates if one.client != late])
        if played.fleet.owners[late] == worker:
            message[places.elapsed_s][late] = -4.5
        for one in others:
            if played.fleet.owners[one] == worker:
                message[places.utilities][one] = 7.0 + one
        mean.add(worker, 1.0, message)
    found = mean.mean()
    assert not any(found[place].any() for place in (places.elapsed_s, places.utilities, places.limits_s))
    steps = played.method.rule(len(SIZES)).round([one for one in updates if one.client != late])
    for at, step in zip(places.learning, steps, strict=True):
        torch.testing.assert_close(found[at], step, rtol=1e-5, atol=1e-6)
    played.model.move(found, played.model.values)
    (note,) = taken(played.fleet)
    assert (note["came"], note["late"], note["dropped"]) == (2, 1, 0)
    assert {one: known["utility"] for one, known in selection.state_dict()["clients"].items()} == {
        one: 7.0 + one for one in others
    }


def test_a_defence_sees_each_client_and_says_where_too_few_came() -> None:
    played = Played(Method(name="fedavg", server={}), defence=Median(), workers=3)
    played.model.begin()
    updates = played.updates()
    mean = played.gathered([0, 1, 2], updates).mean()
    for number, at in enumerate(played.places.learning):
        median = torch.stack([one.delta[number] for one in updates]).median(dim=0).values
        torch.testing.assert_close(mean[at], median.double())
    few = Played(Method(name="fedavg", server={}), defence=Krum(most_liars=1), workers=3)
    few.model.begin()
    with pytest.raises(RunError, match=r"strategy\.defence: Krum: 3 clients have sent something; needs 5"):
        few.gathered([0, 1, 2], few.updates()).mean()


def test_back_at_a_good_state_nothing_is_left_of_what_led_away() -> None:
    played = Played(Method(name="scaffold", server={}, learning_rate=0.1))
    for _ in range(2):
        played.model.begin()
        good = played.model.values
        played.model.keep()
        played.model.move(played.gathered([0, 1], played.updates()).mean(), played.model.values)
    state = played.model.state_dict()
    played.model.go_back()
    assert all(torch.equal(played.model.values[at], good[at]) for at in played.places.learning)
    assert all(good[at].any() and not played.model.values[at].any() for at in played.places.variates)
    assert played.rule.state_dict() == {"variate": []}
    played.model.load_state_dict(state)
    assert not torch.equal(played.model.values[played.places.learning[0]], good[played.places.learning[0]])
    assert len(played.rule.state_dict()["variate"]) == len(played.places.variates)


def test_who_says_that_what_it_has_run_is_of_no_samples_is_refused_and_who_has_run_nothing_is_not() -> None:
    played = Played(Method(name="fedavg", server={}))
    played.model.begin()
    message = played.message(0, played.updates())
    played.federation.check(0, sum(SIZES[one] for one, owner in enumerate(played.fleet.owners) if owner == 0), message)
    with pytest.raises(Refused, match="0 samples of clients that were run"):
        played.federation.check(0, 0, message)
    played.federation.check(0, 0, played.message(0, []))
