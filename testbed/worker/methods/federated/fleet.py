"""The server's view of clients: who takes part in a round, on which worker, and how long each has taken."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.server import FederatedRound
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import NOBODY
from testbed.worker.methods.federated.aggregation.weighting import Sent
from testbed.worker.methods.federated.clients.oort import Oort, Report
from testbed.worker.methods.federated.clients.placement import ClientTime, ClientTimes, equal_split, longest_first
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.sampling import Sampling
from testbed.worker.methods.federated.deadline import RoundDeadline

EQUAL = "equal"
PLACEMENTS = ("longest_first", EQUAL)
_MAX_S = 1e6
"""What is said to have taken longer is no number to reckon with."""
MAX_EMPTY = 10
"""Rounds in a row of which nothing comes."""


class EmptyRound(Exception):
    """No client's update of a round has come: the model stays as it is."""


class Fleet:
    """
    Args:
        workers: how many there are, from 0; those that are lost are placed nowhere.
        placement: one of PLACEMENTS: by what clients are expected to take on each worker, or equally many on each.
        stays: clients keep something between rounds, so each is always run by the worker that has run it first.
        one_each: no worker runs two clients of a round, so that no more take part than there are workers. Where clients
            stay, there are as many as workers.
        selection: chooses in place of `sampling`, by what clients report.
        deadline: on which clients take part.
        record: is given the event of each round.
    """

    def __init__(
        self,
        population: Population,
        method: Method,
        sampling: Sampling,
        *,
        workers: int,
        placement: str,
        stays: bool,
        one_each: bool = False,
        selection: Oort | None = None,
        deadline: RoundDeadline | None = None,
        record: Callable[[StepEvent], None],
    ) -> None:
        self._population, self._method, self._sampling = population, method, sampling
        self._selection, self._deadline, self._record = selection, deadline or RoundDeadline(), record
        self._placement, self._stays, self._one_each = "equal" if one_each else placement, stays, one_each
        self._times = ClientTimes(workers)
        self._homes = self._placed(list(range(len(population))), list(range(workers))) if stays else []
        self._round = 0
        self.owners: list[int] = []
        """Of each client in this round; NOBODY: it does not take part."""
        self._expected_s: float | None = None
        self._available = 0
        self._elapsed_s: dict[int, float] = {}
        """Of clients that count."""
        self._cut_s: dict[int, float] = {}
        """Of those that were cut."""
        self._utilities: dict[int, float] = {}
        self._empty = 0
        """Rounds in a row."""

    @property
    def limits_s(self) -> dict[int, float]:
        """Of each client of this round, emulated seconds after which it is cut."""
        return self._deadline.limits_s

    def begin(self, workers: Sequence[int]) -> None:
        """A round does; of the workers that are there. Waits until a client is.

        Raises:
            RunError: no client could take part.
        """
        if not workers:
            raise RunError("no worker is left that could run clients")
        everyone = range(len(self._population))
        able = [one for one in everyone if self._population.can_train(one)]
        runnable = [one for one in able if not self._stays or self._homes[one] in workers]
        if not runnable:
            raise RunError("no client is left: each stays on the worker that has its memory, and these are gone")
        available = self._deadline.present(runnable)
        self._available = len(available)
        if self._selection is None:
            chosen = self._sampling.choose(self._round, available, len(everyone))
        else:
            chosen = self._selection.choose(available)
        if self._one_each and len(chosen) > len(workers):
            chosen = sorted(random.Random(f"one each {self._round}").sample(chosen, len(workers)))
        homes = [self._homes[one] for one in chosen] if self._stays else self._placed(chosen, workers)
        self.owners = [NOBODY] * len(everyone)
        for client, worker in zip(chosen, homes, strict=True):
            self.owners[client] = worker
        self._deadline.begin(self._round, dict(zip(chosen, homes, strict=True)))
        self._round += 1
        self._expected_s = self._longest_expected_s()
        self._elapsed_s, self._cut_s, self._utilities = {}, {}, {}

    def samples(self, worker: int) -> int:
        """Return how many samples all clients have that a worker has in this round."""
        return sum(self._population.samples(client) for client, owner in enumerate(self.owners) if owner == worker)

    def sent(self, worker: int, elapsed_s: Sequence[float], utilities: Sequence[float] | None = None) -> list[Sent]:
        """Of the clients that `worker` has run, and that count.

        Args:
            elapsed_s: as it has reported of each client; those without any, or with what is no time, were not run; what
                is below 0 is of a client that was cut.
            utilities: likewise; one that cannot be counts as 0.
        """
        found = []
        for client, owner in enumerate(self.owners):
            if owner == worker and elapsed_s[client] < 0 and self.limits_s[client] < _MAX_S:
                self._cut_s[client] = min(-elapsed_s[client], self.limits_s[client])
            elif owner == worker and 0 < elapsed_s[client] < _MAX_S:
                self._times.observe(worker, self._population.samples(client), elapsed_s[client])
                self._elapsed_s[client] = elapsed_s[client]
                if utilities is not None and 0 <= utilities[client] < math.inf:
                    self._utilities[client] = utilities[client]
                steps = self._method.effective_steps(self._population.steps(client))
                found.append(Sent(client=client, weight=self._population.samples(client), steps=steps))
        return found

    @property
    def came(self) -> int:
        """Clients of this round of which something was sent."""
        return len(self._elapsed_s)

    def finish(self) -> None:
        """The round is over; what came of it is known.

        Raises:
            RunError: for too many rounds in a row nothing has.
        """
        self._record(self.event())
        if self._selection is not None:
            self._selection.finish_round(
                {
                    client: Report(utility=self._utilities.get(client, 0.0), duration_s=elapsed_s)
                    for client, elapsed_s in self._elapsed_s.items()
                }
            )
        self._empty = 0 if self.came else self._empty + 1
        if self._empty == MAX_EMPTY:
            raise RunError(
                f"{MAX_EMPTY} rounds in a row no client's update has come: clients were cut, or their workers are"
                " gone; give them longer (strategy.deadline_s, strategy.availability), or less to do"
            )

    def event(self) -> FederatedRound:
        """Return the event of the round that has just been."""
        asked = [client for client, owner in enumerate(self.owners) if owner != NOBODY]
        loads: dict[int, float] = {}
        taken_s = self._elapsed_s | self._cut_s
        for client, elapsed_s in taken_s.items():
            loads[self.owners[client]] = loads.get(self.owners[client], 0.0) + elapsed_s
        dropped = sum(self._deadline.left(client) for client in self._cut_s)
        return FederatedRound(
            round=self._round - 1,
            asked=len(asked),
            came=self.came,
            available=self._available,
            late=len(self._cut_s) - dropped,
            dropped=dropped,
            waited_s=self._deadline.waited_s,
            expected_s=self._expected_s,
            longest_worker_s=max(loads.values(), default=0.0),
            all_clients_s=sum(loads.values()),
            longest_client_s=max(taken_s.values(), default=0.0),
            clients=list(taken_s),
            ranks=[self.owners[client] + 1 for client in taken_s],
            elapsed_s=[float(f"{one:.6g}") for one in taken_s.values()],
        )

    def state_dict(self) -> dict[str, Any]:
        own = {"round": self._round, "owners": list(self.owners), "times": self._times.state_dict()}
        own |= {"expected_s": self._expected_s, "elapsed_s": dict(self._elapsed_s), "cut_s": dict(self._cut_s)}
        own |= {"utilities": dict(self._utilities), "available": self._available, "empty": self._empty}
        own |= {"selection": None if self._selection is None else self._selection.state_dict()}
        return own | {"terms": self._deadline.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._round, self.owners = state["round"], list(state["owners"])
        self._times.load_state_dict(state["times"])
        self._expected_s, self._elapsed_s = state["expected_s"], dict(state["elapsed_s"])
        self._cut_s, self._utilities = dict(state["cut_s"]), dict(state["utilities"])
        self._available, self._empty = state["available"], state["empty"]
        self._deadline.load_state_dict(state["terms"])
        if self._selection is not None:
            self._selection.load_state_dict(state["selection"])

    def _placed(self, clients: Sequence[int], workers: Sequence[int]) -> list[int]:
        """The worker of each."""
        if self._placement == "equal":
            return [workers[place] for place in equal_split(len(clients), min(len(clients), len(workers)))]
        fitted = self._times.fitted()
        times = [ClientTime(0.0, 1.0) if fitted is None else fitted[worker] for worker in workers]
        places = longest_first([self._population.samples(client) for client in clients], times)
        return [workers[place] for place in places]

    def _longest_expected_s(self) -> float | None:
        """Of the worker that would take longest, if each client takes what clients have taken there; None: nothing is
        known."""
        fitted = self._times.fitted()
        if fitted is None:
            return None
        loads: dict[int, float] = {}
        for client, owner in enumerate(self.owners):
            if owner != NOBODY:
                alone_s = min(fitted[owner].of(self._population.samples(client)), self.limits_s[client])
                loads[owner] = loads.get(owner, 0.0) + alone_s
        return max(loads.values())
