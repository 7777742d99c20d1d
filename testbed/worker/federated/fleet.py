"""The server's view of clients: who takes part in a round, on which worker, and how long each has taken."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.core.client_placement import ClientTime, ClientTimes, equal_split, longest_first
from testbed.core.errors import RunError
from testbed.core.federated.sampling import Sampling
from testbed.core.federated.weighting import Sent
from testbed.worker.federated.methods import Method
from testbed.worker.federated.population import Population
from testbed.worker.federated.state import NOBODY

PLACEMENTS = ("longest_first", "equal")
_MOST_S = 1e6
"""What is said to have taken longer is no number to reckon with."""


class Fleet:
    """
    Args:
        workers: how many there are, from 0; those that are lost are placed nowhere.
        placement: one of PLACEMENTS: by what clients are expected to take on each worker, or equally many on each.
        stays: clients keep something between rounds, so each is always run by the worker that has run it first.
        one_each: no worker runs two clients of a round, so that no more take part than there are workers. Where clients
            stay, there are as many as workers.
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
    ) -> None:
        self._population, self._method, self._sampling = population, method, sampling
        self._placement, self._stays, self._one_each = "equal" if one_each else placement, stays, one_each
        self._times = ClientTimes(workers)
        self._homes = self._placed(list(range(len(population))), list(range(workers))) if stays else []
        self._round = 0
        self.owners: list[int] = []
        """Of each client in this round; NOBODY: it does not take part."""
        self._expected_s: float | None = None
        self._elapsed_s: dict[int, float] = {}

    def begin(self, workers: Sequence[int]) -> None:
        """A round does; of the workers that are there.

        Raises:
            RunError: no client could take part.
        """
        if not workers:
            raise RunError("no worker is left that could run clients")
        everyone = range(len(self._population))
        available = [one for one in everyone if not self._stays or self._homes[one] in workers]
        if not available:
            raise RunError("no client is left: each stays on the worker that has its memory, and these are gone")
        chosen = self._sampling.choose(self._round, available, len(everyone))
        if self._one_each and len(chosen) > len(workers):
            chosen = sorted(random.Random(f"one each {self._round}").sample(chosen, len(workers)))
        homes = [self._homes[one] for one in chosen] if self._stays else self._placed(chosen, workers)
        self.owners = [NOBODY] * len(everyone)
        for client, worker in zip(chosen, homes, strict=True):
            self.owners[client] = worker
        self._round += 1
        fitted = self._times.fitted()
        self._expected_s = None if fitted is None else max(self._loads(lambda one, at: fitted[at].of(one)).values())
        self._elapsed_s = {}

    def sent(self, worker: int, elapsed_s: Sequence[float]) -> list[Sent]:
        """Of the clients that `worker` has run.

        Args:
            elapsed_s: as it has reported of each client; those without any, or with what is no time, were not run.
        """
        found = []
        for client, owner in enumerate(self.owners):
            if owner == worker and 0 < elapsed_s[client] < _MOST_S:
                self._times.observe(worker, self._population.samples(client), elapsed_s[client])
                self._elapsed_s[client] = elapsed_s[client]
                steps = self._method.effective_steps(self._population.steps(client))
                found.append(Sent(client=client, weight=self._population.samples(client), steps=steps))
        return found

    @property
    def came(self) -> int:
        """Clients of this round of which something was sent."""
        return len(self._elapsed_s)

    def note(self) -> dict[str, Any]:
        """Of the round that has just been, for the record."""
        asked = [client for client, owner in enumerate(self.owners) if owner != NOBODY]
        loads: dict[int, float] = {}
        for client, elapsed_s in self._elapsed_s.items():
            loads[self.owners[client]] = loads.get(self.owners[client], 0.0) + elapsed_s
        return {
            "event": "federated_round",
            "round": self._round - 1,
            "asked": len(asked),
            "came": self.came,
            "expected_s": self._expected_s,
            "longest_worker_s": max(loads.values(), default=0.0),
            "all_clients_s": sum(loads.values()),
            "longest_client_s": max(self._elapsed_s.values(), default=0.0),
            "clients": list(self._elapsed_s),
            "ranks": [self.owners[client] + 1 for client in self._elapsed_s],
            "elapsed_s": [float(f"{one:.6g}") for one in self._elapsed_s.values()],
        }

    def state_dict(self) -> dict[str, Any]:
        own = {"round": self._round, "owners": list(self.owners), "times": self._times.state_dict()}
        return own | {"expected_s": self._expected_s, "elapsed_s": dict(self._elapsed_s)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._round, self.owners = state["round"], list(state["owners"])
        self._times.load_state_dict(state["times"])
        self._expected_s, self._elapsed_s = state["expected_s"], dict(state["elapsed_s"])

    def _placed(self, clients: Sequence[int], workers: Sequence[int]) -> list[int]:
        """The worker of each."""
        if self._placement == "equal":
            return [workers[place] for place in equal_split(len(clients), min(len(clients), len(workers)))]
        fitted = self._times.fitted()
        times = [ClientTime(0.0, 1.0) if fitted is None else fitted[worker] for worker in workers]
        places = longest_first([self._population.samples(client) for client in clients], times)
        return [workers[place] for place in places]

    def _loads(self, takes_s: Callable[[int, int], float]) -> dict[int, float]:
        """Seconds of each worker, if a client of so many samples takes `takes_s` there."""
        loads: dict[int, float] = {}
        for client, owner in enumerate(self.owners):
            if owner != NOBODY:
                loads[owner] = loads.get(owner, 0.0) + takes_s(self._population.samples(client), owner)
        return loads
