"""In fresh namespaces: collectives round a ring of sockets over emulated uplinks; prints their times and bytes.

Its argument is JSON: `topology` (words for `compose`), `sizes_bytes`, `repeats`, `nccl` (fields of `Nccl`), `tcp`, and
`broadcasts`, true for broadcasts in place of all-reduces.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from testbed.core.costs.sockets import Nccl
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import WORKER_INTERFACE, Network
from testbed.worker.communication.sockets.neighbours import Neighbours
from testbed.worker.communication.sockets.ring import SocketRing

WAIT_S = 60.0


class Board:
    """Values that threads of this process leave each other."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def put(self, name: str, value: bytes) -> None:
        with self._changed:
            self._values[name] = value
            self._changed.notify_all()

    def get(self, name: str) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._values, WAIT_S), f"no rank has put {name}"
            return self._values[name]


class Ranks:
    """All ranks of a network, a thread each."""

    def __init__(self, network: Network, library: Nccl, *, broadcasts: bool) -> None:
        self.broadcasts = broadcasts
        self.network, self.library, self.board = network, library, Board()
        self.size = len(network.workers)
        self.pool, self.barrier = ThreadPoolExecutor(self.size), threading.Barrier(self.size, timeout=WAIT_S)
        self.rings = list(self.pool.map(self._ring, range(self.size)))

    def _ring(self, rank: int) -> SocketRing:
        place: Any = {"rank": rank, "size": self.size, "interface": WORKER_INTERFACE, "timeout_s": WAIT_S}
        lanes: Any = {"channels": self.library.channels, "sockets": self.library.sockets}
        namespace = self.network.workers[self.network.topology.nodes[rank].name].namespace
        neighbours = namespace.call(lambda: Neighbours.meet(self.board, **place, **lanes))
        return SocketRing(neighbours, rank=rank, size=self.size, library=self.library, timeout_s=WAIT_S)

    def seconds(self, size_bytes: int) -> float:
        """Return the time of one collective from a barrier on: the mean over ranks, of a broadcast that of the last."""
        found = list(self.pool.map(lambda ring: self._one_s(ring, size_bytes), self.rings))
        return max(found) if self.broadcasts else sum(found) / self.size

    def _one_s(self, ring: SocketRing, size_bytes: int) -> float:
        tensor = torch.full((size_bytes // 4,), float(ring.rank))
        self.barrier.wait()
        began_s = time.monotonic()
        (ring.broadcast if self.broadcasts else ring.all_reduce)(tensor)
        taken_s = time.monotonic() - began_s
        wanted = 0 if self.broadcasts else self.size * (self.size - 1) / 2
        assert bool((tensor == wanted).all()), "the result is wrong"
        return taken_s


def main() -> None:
    asked = json.loads(sys.argv[1])
    topology, library = compose(asked["topology"]).topology, Nccl(**asked["nccl"])
    with Network(topology, tcp.profile(asked["tcp"], topology), "nfqueue", lambda _: None) as network:
        ranks = Ranks(network, library, broadcasts=asked.get("broadcasts", False))
        ranks.seconds(asked["sizes_bytes"][0])
        found = []
        for size_bytes in asked["sizes_bytes"]:
            before = {port.key: port.read() for port in network.ports}
            times_s = [ranks.seconds(size_bytes) for _ in range(asked["repeats"])]
            after = {port.key: port.read() for port in network.ports}
            sent = {key[1]: after[key].sent_bytes - before[key].sent_bytes for key in after}
            drops = sum(after[key].drops - before[key].drops for key in after)
            found.append({"size_bytes": size_bytes, "times_s": times_s, "sent_bytes": sent, "drops": drops})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
