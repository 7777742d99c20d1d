"""Who serves whom: rank 0 all others, or those of its own region and a server in each of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from testbed.core.costs.collective import ranks_of_regions
from testbed.core.spec.topology import Topology

ROOT = 0
"""The rank that serves the servers of regions, and whoever has none."""


@dataclass(frozen=True)
class ServerAssignment:
    """Two levels at most. Clients go by numbers, in frames and in the record: that of a rank is one below it, whoever
    serves it."""

    server_of: tuple[int, ...]
    """By rank; that of the root is its own."""

    @classmethod
    def flat(cls, world_size: int) -> ServerAssignment:
        """All are clients of the root."""
        return cls((ROOT,) * world_size)

    @classmethod
    def by_region(cls, topology: Topology) -> ServerAssignment:
        """In each region of two or more workers but the root's own the lowest rank serves the others there. A worker
        that is alone in its region is a client of the root."""
        servers = [ROOT] * len(topology.nodes)
        for members in ranks_of_regions(topology):
            if ROOT not in members:
                for rank in members[1:]:
                    servers[rank] = members[0]
        return cls(tuple(servers))

    @cached_property
    def region_servers(self) -> list[int]:
        return sorted(set(self.server_of) - {ROOT})

    def clients_of(self, server: int) -> list[int]:
        """Their numbers."""
        return [rank - 1 for rank, served_by in enumerate(self.server_of) if served_by == server and rank != ROOT]

    def part(self, rank: int) -> tuple[int, int] | None:
        """Among those that serve nobody its place, and how many they are; None of a server."""
        trainers = [one for one in range(len(self.server_of)) if one != ROOT and one not in self.region_servers]
        return (trainers.index(rank), len(trainers)) if rank in trainers else None


def region_faults(assignment: ServerAssignment | None) -> Iterator[str]:
    """Where it is known that no region would have a server; None: nothing is known, or asked."""
    if assignment is not None and not assignment.region_servers:
        yield (
            "strategy.region_servers=true: no region but that of rank 0 has two workers or more, of which one could"
            " serve; use false, another topology, or more workers"
        )
