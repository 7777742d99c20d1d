"""CPU seconds of collectives, and the least time that the links need for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.costs.collective import (
    MESSAGE_CPU_S,
    OWN_MESSAGE_CPU_S,
    chain_chunks,
    cheapest,
    seconds,
    sent_bytes,
)
from testbed.core.device.profile import Collective
from testbed.core.spec.topology import Topology

BYTE_CPU_S = 1.5e-9
"""CPU seconds that a byte costs sender, router and receiver; estimated with `MESSAGE_CPU_S`."""
GLOO, AUTO = "gloo", "auto"
"""Names of `strategy.collective`."""


@dataclass(frozen=True)
class Traffic:
    """Collectives: what they cost all workers, routers and the kernel, and the least that the links need (emulated)."""

    cpu_s: float
    lasts_s: float

    @classmethod
    def of(cls, collectives: Sequence[Collective], topology: Topology, named: str) -> Traffic:
        """Return what these collectives cost.

        Args:
            named: Name of the way they are carried, or `auto`.
        """
        workers, costs = len(topology.nodes), {GLOO: MESSAGE_CPU_S}
        cpu_s, latencies_s, lasts_s = 0.0, [0.0], 0.0
        for one in collectives:
            how = cheapest(one.kind, one.size_bytes, topology) if named == AUTO else named
            messages = workers * _messages(one.kind, workers)
            sent = sent_bytes(how, one.kind, one.size_bytes, topology)
            cpu_s += one.share * (messages * costs.get(how, OWN_MESSAGE_CPU_S) + sent * BYTE_CPU_S)
            latencies_s.append(seconds(how, one.kind, 0, topology))
            lasts_s += one.share * (seconds(how, one.kind, one.size_bytes, topology) - latencies_s[-1])
        # collectives overlap each other: one's messages follow each other, all bytes share the links
        return cls(cpu_s, max(latencies_s) + lasts_s)

    @classmethod
    def of_chains(cls, sizes_bytes: Sequence[float], topology: Topology, chunk_bytes: float) -> Traffic:
        """Return what chains from one rank to all, or back, cost.

        Args:
            sizes_bytes: Bytes that each carries, whole.
            chunk_bytes: Bytes of one message.
        """
        workers, all_bytes = len(topology.nodes), sum(sizes_bytes)
        messages = (workers - 1) * sum(chain_chunks(size, workers, chunk_bytes) for size in sizes_bytes)
        cpu_s = messages * OWN_MESSAGE_CPU_S + (workers - 1) * all_bytes * BYTE_CPU_S
        # those of all owners together load the links as an all-gather does of which each rank has its part
        return cls(cpu_s, seconds("ring", "all_gather", all_bytes / workers, topology))

    def crowded_share(self, k: float, cores: int) -> float:
        """Return the share of all cores that they take while they are under way."""
        network_s = self.cpu_s / cores
        return network_s / (k * self.lasts_s) if self.lasts_s else math.inf


def _messages(kind: str, workers: int) -> int:
    """That one rank sends in one collective."""
    return (2 if kind == "all_reduce" else 1) * (workers - 1)
