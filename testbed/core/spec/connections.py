"""Connections that a run asks for: how many TCP connections to a peer share a message."""

from __future__ import annotations

import math
from collections.abc import Iterator

from testbed.core.spec.link_profile import MIN_RATE_BIT_S
from testbed.core.spec.topology import Topology

MAX_CONNECTIONS = 32
"""Largest number to one peer: NCCL's on AWS, two channels of 16."""
MAX_OF_A_WORKER = 512
"""Largest number of one worker, to all peers: half of the files that a process may open."""
NCCL_RING = "nccl_ring"
"""The collective whose connections are its own: to the next rank and from the one before, however many ranks there are.
So it has at most twice `MAX_CONNECTIONS`, its default, beside gloo's one to each peer."""


def part_count(size_bytes: float, connections: int, least_bytes: float) -> int:
    """Return in how many parts a message is cut: one a connection, if none has less than `least_bytes` then."""
    return max(1, min(connections, int(size_bytes // least_bytes)))


def faults(connections: int | None, topology: Topology, collective: object = None) -> Iterator[str]:
    """Yield why workers of a network cannot have so many connections to each peer; None is the default."""
    if connections is None:
        return
    peers, profiles = len(topology.nodes) - 1, (p for link in topology.links for _, _, p in link.directions())
    slowest_bit_s = min((profile.rate_bit_s for profile in profiles), default=math.inf)
    if not 1 <= connections <= MAX_CONNECTIONS:
        yield f"connections={connections}: must be from 1 to {MAX_CONNECTIONS}"
    elif collective == NCCL_RING:
        return
    elif connections > 1 and connections * peers > MAX_OF_A_WORKER:
        yield (
            f"connections={connections}: each of {peers + 1} workers would have {connections * peers}, and may have"
            f" {MAX_OF_A_WORKER}; use connections={max(1, MAX_OF_A_WORKER // peers)} at most, or fewer workers"
        )
    elif slowest_bit_s / connections < MIN_RATE_BIT_S:
        most = max(1, int(slowest_bit_s // MIN_RATE_BIT_S))
        yield (
            f"connections={connections}: share {slowest_bit_s:g} bit/s, of which each must have {MIN_RATE_BIT_S:g}; use"
            f" connections={most} at most"
        )
