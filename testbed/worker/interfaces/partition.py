"""Base class of partitions: ways to divide numbered samples among clients."""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar

from testbed.core.declaration import Declared
from testbed.core.kinds import Part
from testbed.core.parameters import Count, raise_all, whole


class Partition(Declared, ABC):
    """Base of ways to divide numbered samples among clients.

    Args:
        least: Fewest samples per client. Where a division leaves one with fewer, the client with the most gives one
            drawn at random, again and again: at most clients * least times.

    Raises:
        ValueError: A parameter is out of its range; all of them, one a line.
    """

    uses_labels: ClassVar[bool] = True
    """False: it divides samples that have no labels, too."""

    def __init__(self, *, least: Count = 1) -> None:
        self.least = least

    def divide(self, labels: Sequence[int], clients: int, seed: int) -> list[list[int]]:
        """Divide all samples among clients.

        Args:
            labels: Labels of all samples, in the order of their indices.
            seed: Seed of the division; the same one divides the same labels in the same way.

        Returns:
            The indices of each client's samples, ascending. Each sample has one client.

        Raises:
            ValueError: There are too few samples for that many clients, or fewer than one client.
        """
        raise_all(whole("clients", clients, 1), whole("seed", seed, 0))
        if len(labels) < clients * self.least:
            raise ValueError(
                f"clients={clients}: {len(labels)} samples are too few for at least {self.least} each;"
                f" use at most {len(labels) // self.least} clients, or a lower least"
            )
        chance = random.Random(f"partition {seed}")
        parts = self._divide(labels, clients, chance)
        _repair(parts, self.least, chance)
        return [sorted(part) for part in parts]

    @abstractmethod
    def _divide(self, labels: Sequence[int], clients: int, chance: random.Random) -> list[list[int]]:
        """Return indices for each client, in any order; some clients may have too few."""


def _repair(parts: list[list[int]], least: int, chance: random.Random) -> None:
    """Move samples to clients with too few; another one then has more than `least`, since there are enough for all."""
    largest = [(-len(part), client) for client, part in enumerate(parts)]
    heapq.heapify(largest)
    for part in parts:
        while len(part) < least:
            _, giver = largest[0]
            given = parts[giver]
            index = chance.randrange(len(given))
            given[index], given[-1] = given[-1], given[index]
            part.append(given.pop())
            heapq.heapreplace(largest, (-len(given), giver))


AnyPartition = Annotated[Partition, Part(Partition, "a Partition")]
