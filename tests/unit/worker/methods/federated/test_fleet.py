"""Who takes part in a round, on which worker; whose samples are drawn when; what travels beside the model."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from testbed.core.errors import InputError, RunError
from testbed.orchestrator.run.workers.messages import checked_message
from testbed.worker.data.partitions import Iid
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import NOBODY, FederatedState, Report
from testbed.worker.methods.federated.clients.division import divided, normalises_batches
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.sampling import Sampling
from testbed.worker.methods.federated.fleet import Fleet
from testbed.worker.workloads.digits import Digits
from tests.unit.worker.recorded import Recorded

SIZES = [2, 4, 6, 8, 10, 20, 30, 40]
SPEEDS = (1.0, 1.0, 0.5, 0.25)
FEDAVG = Method(name="fedavg", server={})


def _population(sizes: list[int] | None = None, **given: int) -> Population:
    counts = iter(range(10**6))
    parts = [[next(counts) for _ in range(size)] for size in sizes or SIZES]
    return Population(parts, **{"batch_size": 4, "epochs": 2, "seed": 0, **given})


def _fleet(workers: int = 2, *, count: int = 8, placement: str = "longest_first", **given: bool) -> Fleet:
    given = {"stays": False, **given}
    sampling = Sampling(count=count)
    return Fleet(_population(), FEDAVG, sampling, workers=workers, placement=placement, record=Recorded(), **given)


def _played(fleet: Fleet, workers: int, rounds: int) -> list[float]:
    """Seconds of the longest worker in each round, where a sample takes 1 s on a worker of speed 1."""
    found = []
    for _ in range(rounds):
        fleet.begin(range(workers))
        for worker in range(workers):
            elapsed = [SIZES[one] / SPEEDS[worker] if at == worker else 0.0 for one, at in enumerate(fleet.owners)]
            fleet.sent(worker, elapsed)
        found.append(fleet.event().to_json()["longest_worker_s"])
    return found


def test_each_epoch_has_every_sample_once_in_an_order_of_its_own() -> None:
    population = _population()
    orders = []
    for client, round_ in ((7, 0), (7, 1), (6, 0)):
        batches = list(population.batches(client, round_))
        assert len(batches) == population.steps(client)
        assert max(map(len, batches)) == 4
        size = population.samples(client)
        numbers = torch.cat(batches).tolist()
        first = sum(SIZES[:client])
        assert sorted(numbers[:size]) == sorted(numbers[size:]) == list(range(first, first + size))
        orders += [[one - first for one in numbers[:size]], [one - first for one in numbers[size:]]]
        assert torch.equal(torch.cat(list(population.batches(client, round_))), torch.tensor(numbers))
    assert len({tuple(order) for order in orders}) == len(orders)


def test_a_client_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"(?s)epochs=0.*client 1: has no sample"):
        Population([[0], []], batch_size=1, epochs=0, seed=0)


@pytest.mark.parametrize(
    ("size", "sizes"), [(1, []), (2, [2]), (4, [4]), (5, [5]), (6, [4, 2]), (8, [4, 4]), (9, [4, 5])]
)
def test_a_batch_of_one_is_taken_along_by_the_one_before(size: int, sizes: list[int]) -> None:
    population = _population([size], least_batch=2)
    batches = list(population.batches(0, 0))
    assert [len(one) for one in batches] == 2 * sizes and population.steps(0) == len(batches)
    assert population.can_train(0) == bool(sizes)
    assert sorted(number for one in batches for number in one.tolist()) == sorted(2 * [*range(sum(sizes))])


def test_batches_of_one_are_refused_where_none_may_be() -> None:
    with pytest.raises(ValueError, match="batch_size=1: must be a whole number, at least 2"):
        _population(batch_size=1, least_batch=2)
    assert normalises_batches(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm2d(2))))
    assert not normalises_batches(nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2), nn.LayerNorm(2)))


def test_a_run_whose_clients_could_never_train_is_refused() -> None:
    model = nn.BatchNorm1d(2)
    given: dict[str, Any] = {"partition": Iid(), "local_epochs": 1}
    for batch_size, clients, told in ((1, 5, "batch_size=1: "), (2, Digits().samples(), "each has one sample")):
        spec: Any = SimpleNamespace(batch_size=batch_size, seed=0)
        with pytest.raises(InputError, match=told):
            divided(Digits(), spec, model, clients=clients, **given)
        assert divided(Digits(), spec, nn.Linear(1, 1), clients=clients, **given).can_train(0)


def test_once_workers_are_known_the_longest_first_is_shorter_than_an_equal_split() -> None:
    first, *later = _played(_fleet(4), 4, 3)
    equal = _played(_fleet(4, placement="equal"), 4, 1)[0]
    assert first > later[0] == later[1]
    assert later[0] < equal / 2


def test_what_is_expected_comes_true_where_times_are_as_before() -> None:
    fleet = _fleet(4)
    _played(fleet, 4, 1)
    assert fleet.event().to_json()["expected_s"] is None
    _played(fleet, 4, 1)
    note = fleet.event().to_json()
    assert note["expected_s"] == pytest.approx(note["longest_worker_s"])
    assert (note["asked"], note["came"], note["round"]) == (8, 8, 1)


def test_clients_that_keep_something_stay_and_are_lost_with_their_worker() -> None:
    fleet = _fleet(3, stays=True)
    fleet.begin([0, 1, 2])
    homes = list(fleet.owners)
    assert set(homes) == {0, 1, 2}
    fleet.begin([0, 2])
    assert fleet.owners == [NOBODY if home == 1 else home for home in homes]
    with pytest.raises(RunError, match="no client is left"):
        fleet.begin([3])
    with pytest.raises(RunError, match="no worker is left"):
        fleet.begin([])


def test_others_go_to_whoever_is_there() -> None:
    fleet = _fleet(3)
    fleet.begin([0, 2])
    assert set(fleet.owners) == {0, 2}


def test_under_a_defence_no_worker_runs_two() -> None:
    fleet = _fleet(4, count=4, one_each=True)
    fleet.begin(range(4))
    assert sorted(fleet.owners) == [NOBODY] * 4 + [0, 1, 2, 3]
    fleet.begin([1, 3])
    assert sorted(fleet.owners) == [NOBODY] * 6 + [1, 3]


def test_a_worker_is_not_believed_what_cannot_be() -> None:
    fleet = _fleet(2)
    fleet.begin([0, 1])
    mine = [client for client, owner in enumerate(fleet.owners) if owner == 0]
    said = [1.0] * len(SIZES)
    said[mine[0]], said[mine[1]] = math.inf, -1.0
    said[mine[2]] = math.nan
    assert [one.client for one in fleet.sent(0, said)] == mine[3:]
    assert fleet.came == len(mine) - 3
    assert fleet.event().to_json()["clients"] == mine[3:]


def test_the_record_has_what_each_client_took_and_where() -> None:
    fleet = _fleet(2, count=3, placement="equal")
    fleet.begin([0, 1])
    chosen = [client for client, owner in enumerate(fleet.owners) if owner != NOBODY]
    for worker in (1, 0):
        fleet.sent(worker, [0.1234567 * (1 + client) for client in range(len(SIZES))])
    note = fleet.event().to_json()
    assert sorted(note["clients"]) == chosen
    assert note["ranks"] == [fleet.owners[client] + 1 for client in note["clients"]]
    assert note["elapsed_s"] == [pytest.approx(0.1234567 * (1 + client), rel=1e-5) for client in note["clients"]]
    assert max(len(repr(one)) for one in note["elapsed_s"]) <= 8, "a thousand clients make a line of some 20 kB"
    assert checked_message({"t_s": 1.0, "step": 1, **note}, rank=0)["elapsed_s"] == note["elapsed_s"]
    with pytest.raises(ValueError, match="elapsed_s"):
        checked_message({"t_s": 1.0, "step": 1, **note, "elapsed_s": [math.nan]}, rank=0)


def test_it_goes_on_from_a_state_as_if_it_had_not_stopped() -> None:
    fleet, other = _fleet(4, count=5), _fleet(4, count=5)
    _played(fleet, 4, 2)
    other.load_state_dict(fleet.state_dict())
    for one in (fleet, other):
        one.begin(range(4))
    assert fleet.owners == other.owners and fleet.event().to_json() == other.event().to_json()


def test_variates_travel_as_parameters_and_reports_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    state = FederatedState(model, 5, variates=True)
    assert [one.shape for one in state.variates] == [one.shape for one in model.parameters()]
    assert all(isinstance(one, nn.Parameter) and not one.any() for one in state.variates)
    assert FederatedState(model, 5, variates=False).variates == []
    assert len(state.statistics) == 2 and len(state.discrete) == 1
    state.owners.copy_(torch.tensor([0, 1, NOBODY, 1, 0]))
    assert (state.owned(1), state.owned(0), state.owned(2)) == ([1, 3], [0, 4], [])
    state.report([Report(1, 2.5, 0.5)])
    state.report([Report(3, 1.5, 0.25)])
    assert state.elapsed_s.tolist() == [0, 0, 0, 1.5, 0] and state.losses.tolist() == [0, 0, 0, 0.25, 0]
