"""Who runs which client, where each worker is given one whenever it is free."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.worker.methods.federated.clients.sampling import Sampling


@dataclass(frozen=True)
class Task:
    """Of one worker."""

    client: int
    run: int
    """How often the client was given to a worker before, whatever came of it."""
    version: int
    """Of the model that it begins with."""


class Dispatch:
    """One client at a time for each worker, drawn among those that nobody runs, all equally likely; the same ones for
    the same seed and order of events.

    Args:
        clients: how many there are; as many as workers, or more.
        seed: of the run.
    """

    def __init__(self, clients: int, seed: int) -> None:
        self._sampling, self._runs = Sampling(count=1, seed=seed), [0] * clients
        self.tasks: dict[int, Task] = {}
        """By worker; none of those that are free."""

    def give(self, worker: int, version: int) -> Task:
        """
        Raises:
            ValueError: the worker has one already, or no client is left.
        """
        if worker in self.tasks:
            raise ValueError(f"worker {worker} runs client {self.tasks[worker].client} already")
        running = {task.client for task in self.tasks.values()}
        free = [client for client in range(len(self._runs)) if client not in running]
        if not free:
            raise ValueError(f"clients={len(self._runs)}: workers run all of them already")
        (client,) = self._sampling.choose(sum(self._runs), free, len(self._runs))
        task = self.tasks[worker] = Task(client, self._runs[client], version)
        self._runs[client] += 1
        return task

    def take(self, worker: int) -> Task:
        """The worker is free, or gone."""
        return self.tasks.pop(worker)
