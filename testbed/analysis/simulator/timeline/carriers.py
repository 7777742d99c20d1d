"""Who carries collectives, and in which order: gloo's two threads, and the one of the testbed's own algorithms."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from testbed.analysis.simulator.model.network import Network, Times
from testbed.analysis.simulator.model.traffic import algorithm_of
from testbed.analysis.simulator.timeline import collectives
from testbed.analysis.simulator.timeline.collectives import CHAIN, HALF, LIBRARY
from testbed.analysis.simulator.timeline.period_skip import PeriodSkip
from testbed.analysis.simulator.timeline.rings import UnderWay
from testbed.core.costs.collective import CHAIN_CHUNK_BYTES, chain_chunks

GLOO, OURS = "gloo", "ours"
_THREADS = (GLOO, GLOO, OURS)
"""Whose each is: gloo's take from one queue, in order, and ours from another; a host that starts each takes ours."""


@dataclass
class Issued:
    """A collective that was asked for."""

    algorithm: str
    kind: str
    size: float
    issued_s: Times
    network: Network
    """Network as one of the parts of the message has it."""
    root: int | None = None
    """Of a chain."""
    chunk_bytes: float = CHAIN_CHUNK_BYTES
    """Likewise."""
    under_way: UnderWay | None = None

    @property
    def is_done(self) -> bool:
        return self.under_way is not None and self.under_way.is_done


class Carriers:
    """Begins what is issued once a thread is free, and follows all that is under way together, by time."""

    def __init__(self, network: Network, algorithm: str = GLOO) -> None:
        self._network, self._algorithm = network, algorithm
        self._free_s = [np.full(network.size, -np.inf) for _ in _THREADS]
        self._active: dict[int, Issued] = {}
        self._queues: dict[str, deque[Issued]] = {GLOO: deque(), OURS: deque()}
        self._period_skip = PeriodSkip(network)

    @property
    def size(self) -> int:
        """Of ranks."""
        return self._network.size

    def issue(self, kind: str, size: float, now_s: Times, algorithm: str | None = None) -> Issued:
        """
        Args:
            algorithm: where it is not the one of all.
        """
        asked, network = algorithm or self._algorithm, self._network
        algorithm = algorithm_of(asked, kind, size / network.connections, network.topology)
        message = collectives.message_bytes(network, algorithm, kind, size)
        # an all-to-all of gloo's is always cut; all parts of a message are alike, so one of them is followed
        parts = network.connections if message is None else network.parts(message)
        if algorithm == GLOO and self._network.library is not None:
            algorithm = LIBRARY  # its closed form has the links for itself, so one goes after another
        issued = Issued(algorithm, kind, size / parts, now_s.copy(), network.of_parts(parts))
        return self._queued(GLOO if algorithm == GLOO else OURS, issued)

    def issue_chain(
        self, kind: str, size: float, now_s: Times, root: int, chunk_bytes: float = CHAIN_CHUNK_BYTES
    ) -> Issued:
        """Of all ranks, from `root` or to it."""
        parts = self._network.parts(size / chain_chunks(size, self._network.size, chunk_bytes))
        network = self._network.of_parts(parts)
        return self._queued(OURS, Issued(CHAIN, kind, size / parts, now_s.copy(), network, root, chunk_bytes / parts))

    def end_s(self, issued: Issued) -> Times:
        """When each rank has the result of `issued`."""
        while not issued.is_done:
            self._begin_queued()
            soonest = min(self._active.values(), key=_now_s)
            assert soonest.under_way is not None
            soonest.under_way.advance()
            self._period_skip.after_advance([one.under_way for one in self._active.values()])
            self._free_done()
        assert issued.under_way is not None
        return issued.under_way.end_s()

    def _begin_queued(self) -> None:
        for thread, whose in enumerate(_THREADS):
            queue = self._queues[whose]
            if queue and thread not in self._active:
                one = queue.popleft()
                start_s = self._network.host.collective_s * (0.5 if one.kind == HALF else 1.0)
                at_s = np.maximum(one.issued_s, self._free_s[thread]) + start_s
                how = one.algorithm, one.kind, one.size, at_s, one.root, one.chunk_bytes
                one.under_way = collectives.begin(one.network, *how)
                self._active[thread] = one

    def _queued(self, whose: str, issued: Issued) -> Issued:
        self._queues[OURS if self._network.host.collective_s else whose].append(issued)
        return issued

    def _free_done(self) -> None:
        for thread, one in list(self._active.items()):
            if one.under_way is not None and one.is_done:
                self._free_s[thread] = one.under_way.end_s()
                del self._active[thread]


def _now_s(issued: Issued) -> float:
    assert issued.under_way is not None
    return issued.under_way.now_s
