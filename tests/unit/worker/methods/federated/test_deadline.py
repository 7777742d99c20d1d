"""Who is drawn of those that are there, who is cut when, and rounds of which nothing comes."""

from __future__ import annotations

import io
import math
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from testbed.core.errors import InputError, RunError
from testbed.worker.device.clock import PhaseClock
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import NOBODY
from testbed.worker.methods.federated.client_selection import ClientSelection
from testbed.worker.methods.federated.clients.availability import Alternating, Availability
from testbed.worker.methods.federated.clients.oort import Oort
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.sampling import Sampling
from testbed.worker.methods.federated.clients.slowness import Slowness
from testbed.worker.methods.federated.deadline import RoundDeadline
from testbed.worker.methods.federated.fleet import MAX_EMPTY, Fleet
from testbed.worker.methods.federated.local_client import alone_s
from testbed.worker.methods.federated.presence import Presence, RunTime
from tests.unit.worker.recorded import Recorded, taken

SIZES = [2, 4, 6, 8, 10, 20]
FEDAVG = Method(name="fedavg", server={})


class Spans(Availability):
    """One time of each client."""

    def __init__(self, *spans: tuple[float, float]) -> None:
        self._spans = spans

    def until_s(self, client: int, now_s: float) -> float | None:
        from_s, until_s = self._spans[client]
        return until_s if from_s <= now_s < until_s else None

    def next_s(self, client: int, now_s: float) -> float:
        from_s, until_s = self._spans[client]
        return max(from_s, now_s) if now_s < until_s else math.inf


class Told(RunTime):
    """Time that goes on where it is waited for."""

    def __init__(self) -> None:
        super().__init__(PhaseClock())
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s

    def wait(self, seconds: float) -> None:
        self.at_s += seconds

    def set(self, now_s: float) -> None:
        self.at_s = now_s


def _presence(*spans: tuple[float, float], most_wait_s: float = 50.0) -> tuple[Presence, Told]:
    time = Told()
    return Presence(Spans(*spans), time, most_wait_s=most_wait_s), time


def _population() -> Population:
    counts = iter(range(1000))
    parts = [[next(counts) for _ in range(size)] for size in SIZES]
    return Population(parts, batch_size=4, epochs=1, seed=0)


def _fleet(deadline: RoundDeadline | None = None, *, count: int = 6, selection: Oort | None = None) -> Fleet:
    given: dict[str, Any] = {"workers": 2, "placement": "equal", "stays": False}
    return Fleet(
        _population(), FEDAVG, Sampling(count=count), selection=selection, deadline=deadline, record=Recorded(), **given
    )


def _drawn(fleet: Fleet) -> list[int]:
    return [client for client, owner in enumerate(fleet.owners) if owner != NOBODY]


def _run(fleet: Fleet, *, cut: Collection[int] = (), utility: float = 1.0) -> list[int]:
    """A round in which those that are drawn take a second a sample; who came."""
    fleet.begin([0, 1])
    elapsed = [-fleet.limits_s.get(one, 0.0) if one in cut else float(size) for one, size in enumerate(SIZES)]
    came = [one.client for worker in (0, 1) for one in fleet.sent(worker, elapsed, [utility * s for s in SIZES])]
    fleet.finish()
    return came


def test_only_those_that_are_there_are_drawn_and_they_are_cut_when_they_go() -> None:
    presence, time = _presence((0, 9), (5, 9), (0, 30), (0, math.inf), (0, 4), (0, 1))
    fleet = _fleet(RoundDeadline(presence, deadline_s=20))
    time.at_s = 4.5
    fleet.begin([0, 1])
    assert _drawn(fleet) == [0, 2, 3]
    assert fleet.limits_s == {0: 4.5, 2: 20.0, 3: 20.0}
    assert fleet.event().to_json()["available"] == 3


def test_the_server_waits_for_the_next_who_comes_and_no_longer_than_it_may() -> None:
    presence, time = _presence((30, 60), (20, 60))
    assert presence.leaving([0, 1]) == {1: 40.0}
    assert (time.at_s, presence.waited_s) == (20.0, 20.0)
    assert presence.leaving([0, 1]) == {1: 40.0} and presence.waited_s == 0
    presence, _ = _presence((51, 60), (70, 80))
    with pytest.raises(RunError, match=r"none of 2 clients is available 0 s .*comes in 51 s.*round_timeout_s=50"):
        presence.leaving([0, 1])
    presence, time = _presence((0, 1))
    time.at_s = 2
    with pytest.raises(RunError, match="the next one comes never"):
        presence.leaving([0])


def test_a_run_goes_on_in_time_where_its_server_was() -> None:
    clock = PhaseClock(dilation=1000.0)
    before, after = (Presence(Spans((0, 1e9)), RunTime(clock), most_wait_s=1.0) for _ in range(2))
    before.leaving([0])
    after.load_state_dict({**before.state_dict(), "now_s": 500.0})
    assert after.leaving([0])[0] == pytest.approx(1e9 - 500, abs=100)


def test_late_and_dropped_clients_are_told_and_do_not_count() -> None:
    presence, _ = _presence((0, 3), (0, 100), (0, 100), (0, 100), (0, 8), (0, 100))
    fleet = _fleet(RoundDeadline(presence, deadline_s=8))
    assert sorted(_run(fleet, cut=(0, 4, 5))) == [1, 2, 3]
    (note,) = taken(fleet)
    assert (note["asked"], note["came"], note["late"], note["dropped"]) == (6, 3, 1, 2)
    assert note["longest_client_s"] == 8.0 and note["all_clients_s"] == 3 + 4 + 6 + 8 + 8 + 8
    assert taken(fleet) == []


def test_only_who_may_be_cut_is_believed_to_be() -> None:
    fleet = _fleet()
    assert 0 not in _run(fleet, cut=(0,))
    (note,) = taken(fleet)
    assert (note["came"], note["late"], note["dropped"]) == (5, 0, 0)


def test_of_more_than_are_wanted_the_first_that_are_done_count() -> None:
    deadline = RoundDeadline(
        deadline_s=9, first=2, takes=lambda client, round_, worker: [5, 3, 10, 5, 8, 3][client] + round_
    )
    owners = dict.fromkeys(range(6), 0)
    deadline.present(list(range(6)))
    deadline.begin(0, owners)
    assert {one for one, limit_s in deadline.limits_s.items() if limit_s >= [5, 3, 10, 5, 8, 3][one]} == {1, 5}
    assert max(deadline.limits_s[one] for one in (0, 2, 3, 4)) < 3
    assert not deadline.left(0)
    deadline = RoundDeadline(first=3, takes=lambda client, *_: 5.0)
    deadline.present(list(range(6)))
    deadline.begin(0, owners)
    assert [one for one in range(6) if deadline.limits_s[one] >= 5] == [0, 1, 2], "of equals the lowest numbers"


def test_who_goes_away_first_is_none_of_the_first_that_are_done() -> None:
    presence, _ = _presence((0, 2), (0, 100), (0, 100))
    deadline = RoundDeadline(presence, first=1, takes=lambda client, *_: [3.0, 7.0, 4.0][client])
    deadline.present([0, 1, 2])
    deadline.begin(0, {0: 0, 1: 0, 2: 1})
    assert deadline.limits_s[0] == 2 and deadline.left(0)
    assert deadline.limits_s[2] == 100 and deadline.limits_s[1] < 4 and not deadline.left(1)


def test_oort_is_told_of_those_that_came_and_chooses_by_it() -> None:
    selection = Oort(exploration=0, least_exploration=0, clip=1.0).of_run(2, 0)
    fleet = _fleet(selection=selection)
    first = _run(fleet)
    _run(fleet)
    third = _run(fleet, cut=())
    assert len(first) == len(third) == 2
    known = selection.state_dict()["clients"]
    assert {one: known[one]["duration_s"] for one in first} == {one: float(SIZES[one]) for one in first}
    assert {one: known[one]["utility"] for one in first} == {one: float(SIZES[one]) for one in first}


def test_a_utility_that_cannot_be_is_none() -> None:
    selection = Oort(exploration=0, least_exploration=0).of_run(6, 0)
    fleet = _fleet(selection=selection)
    fleet.begin([0, 1])
    for worker in (0, 1):
        fleet.sent(worker, [1.0] * 6, [math.inf, math.nan, -1.0, 5.0, 0.0, 1.0])
    fleet.finish()
    known = selection.state_dict()["clients"]
    assert [known[one]["utility"] for one in range(6)] == [0, 0, 0, 5, 0, 1]


def test_it_goes_on_from_a_state_that_was_on_disk_with_clients_and_terms_as_they_were() -> None:
    def made() -> Fleet:
        presence, _ = _presence(*[(0, 100)] * 5, (0, 15))
        return _fleet(RoundDeadline(presence, deadline_s=12), selection=Oort(exploration=0.5).of_run(4, 0))

    fleet, other, file = made(), made(), io.BytesIO()
    for _ in range(3):
        _run(fleet, cut=(5,))
    assert len(taken(fleet)) == 3
    fleet.begin([0, 1])
    torch.save(fleet.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.limits_s == fleet.limits_s and other.event().to_json() == fleet.event().to_json()
    came = [[_run(one, cut=(5,)) for _ in range(3)] for one in (fleet, other)]
    assert came[0] == came[1] and all(came[0])
    assert taken(fleet) == taken(other)


def test_rounds_of_which_nothing_comes_are_told_until_there_are_too_many() -> None:
    everybody = range(6)
    fleet = _fleet(RoundDeadline(deadline_s=0.5))
    for _ in range(MAX_EMPTY - 1):
        assert _run(fleet, cut=everybody) == []
    assert _run(fleet, cut=everybody[1:]) == [0]  # which begins the count anew
    for _ in range(MAX_EMPTY - 1):
        _run(fleet, cut=everybody)
    with pytest.raises(RunError, match="10 rounds in a row no client's update has come"):
        _run(fleet, cut=everybody)
    notes = taken(fleet)
    assert len(notes) == 2 * MAX_EMPTY and sum(note["came"] for note in notes) == 1


def test_a_client_without_a_batch_to_train_on_is_not_drawn() -> None:
    population = Population([[0, 1], [2], [3, 4]], batch_size=2, epochs=1, seed=0, least_batch=2)
    fleet = Fleet(population, FEDAVG, Sampling(count=3), workers=1, placement="equal", stays=False, record=Recorded())
    fleet.begin([0])
    assert fleet.owners == [0, NOBODY, 0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"selection": "oort"}, "selection=oort: must be an Oort"),
        ({"selection": Oort(count=3)}, "selection.count=3: follows from strategy.participants"),
        ({"availability": 3}, "availability=3: must be an Availability"),
        ({"deadline_s": 0}, "deadline_s=0"),
        ({"overselect": 0.5}, "overselect=0.5"),
        ({"overselect": 1.3, "participants": None}, "all clients take part as it is"),
        ({"overselect": 1.3, "sees_each": True}, "under a defence each worker runs one client"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ClientSelection(**{"clients": 10, "participants": 5, **given})


def test_so_many_are_drawn_as_are_asked_for_times_what_is_drawn_too_many() -> None:
    for overselect, drawn in ((1.0, 10), (1.1, 11), (1.3, 13), (1.31, 14), (9.0, 50)):
        client_selection = ClientSelection(clients=50, participants=10, overselect=overselect)
        assert (client_selection.wanted, client_selection.drawn) == (10, drawn)
    assert ClientSelection(clients=500, participants=100, overselect=1.1).drawn == 110  # floats say a bit more
    assert not ClientSelection(clients=50, participants=10).cuts
    assert ClientSelection(clients=50, participants=10, availability=Alternating(present_s=1, absent_s=1)).cuts


def _context(profile: object) -> WorkerContext:
    clock = SimpleNamespace(times=SimpleNamespace(profile=profile), dilation=1.0)
    spec = SimpleNamespace(seed=0, batch_size=4)
    return cast(
        WorkerContext, SimpleNamespace(clock=clock, spec=spec, comm=SimpleNamespace(world_size=3), record=Recorded())
    )


def test_too_many_are_drawn_only_where_it_is_known_who_will_be_first() -> None:
    client_selection, slowness = ClientSelection(clients=6, participants=3, overselect=2.0), Slowness(sigma=1.0, seed=0)
    with pytest.raises(InputError, match=r"strategy\.overselect=2: .*not paced to a device"):
        client_selection.require_clock(_context(None).clock)
    profile: Any = SimpleNamespace(forward_s=0.1, backward_s=0.2, optimizer_s=0.05)
    population, speeds = _population(), [1.0, 0.5]
    given: dict[str, Any] = {"placement": "equal", "speeds": speeds, "most_wait_s": 1.0}
    fleet = client_selection.fleet(_context(profile), population, FEDAVG, slowness, **given)
    fleet.begin([0, 1])
    takes_s = {
        one: alone_s(profile, population, one, 4) * (slowness.factor(one, 0) / speeds[fleet.owners[one]])
        for one in range(6)
    }
    done = sorted(takes_s, key=lambda one: takes_s[one])[:3]
    assert sorted(one for one in range(6) if takes_s[one] <= fleet.limits_s[one]) == sorted(done)
