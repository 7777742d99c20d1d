"""Choice of the algorithm that carries an exchange: the one that was named, or the cheapest by the closed forms."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from torch import Tensor

from compressors.base.compressor import Compressor, Context, Exchange, Route
from testbed.core.costs import collective
from testbed.core.costs.sockets import GLOO, NCCL, Gloo, Nccl
from testbed.core.kinds import Choice
from testbed.core.spec.scale import shared_topology
from testbed.core.spec.topology import Topology
from testbed.worker.communication.collectives import gloo_ring, hierarchical, ring, two_shot
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import Pending
from testbed.worker.communication.sockets.ring import SocketRing
from testbed.worker.communication.transport import Peers, exchange, others, places

# All-to-all between pairs, everything under way at once.


def all_to_all(peers: Peers, payloads: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
    """Send `payloads[r]` to rank r, and return what each rank sent, of `sizes[r]` bytes."""
    received = places(payloads[0], sizes)
    received[peers.index].copy_(payloads[peers.index])
    exchange(
        peers,
        [(to, payloads[to]) for to in others(peers)],
        [(source, received[source]) for source in others(peers)],
    )
    return received


COLLECTIVES = (*collective.ALGORITHMS, "auto")
CollectiveName = Annotated[str, Choice(COLLECTIVES)]
SumsName = Annotated[str, Choice((*COLLECTIVES, *collective.SUMS_ALONE))]
"""Names of collectives, those that carry sums alone among them."""


def sums_fault(name: str, compressor: Compressor) -> Iterator[str]:
    """Yield why exchanges of a compressor cannot be carried by the collective of that name."""
    if name in collective.SUMS_ALONE and compressor.traits.sum_dtype is None:
        sent = type(compressor).__name__
        yield f"strategy.collective={name}: carries sums alone, but {sent} sends otherwise; use collective=ring"


def routes_of(contexts: Iterable[Context]) -> list[str]:
    """Return the value of the route of each bucket that takes one, in order."""
    return [context.route.value for context in contexts if context.route is not None]


class Collectives:
    """Exchanges among all workers of a topology, by the algorithm of that name; `auto` chooses for each.

    The choice follows from values that all ranks know, so all choose the same.

    Raises:
        ValueError: There is no such algorithm, or it needs the regions of workers that are not in the topology.
    """

    def __init__(
        self,
        comm: Communicator,
        topology: Topology,
        name: str = "gloo",
        libraries: tuple[Nccl, Gloo] = (NCCL, GLOO),
    ) -> None:
        """Take the parts of the run.

        Args:
            libraries: Numbers by which rings send that are like theirs.
        """
        known = *COLLECTIVES, *collective.SUMS_ALONE
        if name not in known:
            raise ValueError(f"collective={name}: unknown; known: {', '.join(known)}")
        if name != "gloo" and comm.world_size != len(topology.nodes):
            found = f"{comm.world_size} workers, of which {topology.name} places {len(topology.nodes)}"
            raise ValueError(f"collective={name}: needs the region of each worker, found {found}")
        self.comm, self.name, self._topology = comm, name, topology
        self._nccl, self._gloo = libraries
        self._ring: SocketRing | None = None
        self.regions = collective.ranks_of_regions(topology)
        """The ranks of each region that has any; the first leads."""
        self._cheapest = functools.lru_cache(maxsize=1024)(self._cheapest_of_parts)

    def algorithm(self, exchange: Exchange) -> str:
        """Return the algorithm that carries `exchange`; its sizes must be known."""
        if self.name != "auto":
            return self.name
        if exchange.kind == "all_to_all":
            # Its sizes differ from rank to rank, so nothing may follow from them; by the forms all cost the same.
            return "two_shot"
        size = exchange.data[0].nbytes if exchange.kind == "all_reduce" else sum(exchange.sizes or ())
        share = size if exchange.kind == "all_reduce" else size / self.comm.world_size
        return self._cheapest(exchange.kind, share)

    def planned(self, route: Route, size_bytes: float) -> str:
        """Return the algorithm that will carry a bucket of payloads of `size_bytes`, for the record."""
        if self.name != "auto" or route is Route.OWN or self.comm.world_size < 2:
            return self.name
        if route is Route.TWO_SHOT:
            return self._cheapest("all_gather", size_bytes / self.comm.world_size)
        return self._cheapest("all_reduce" if route is Route.REDUCE_SUM else "all_gather", size_bytes)

    def planned_for(self, compressor: Compressor, contexts: Iterable[Context]) -> list[str]:
        """Return the algorithm for each bucket that takes a route, in order, for the record."""
        return [
            self.planned(context.route, compressor.payload_bytes(context.layout, context))
            for context in contexts
            if context.route is not None
        ]

    def _cheapest_of_parts(self, kind: str, size_bytes: float) -> str:
        """Return the algorithm of least time for what each of the connections takes of a message, as plans do."""
        count = self.comm.connections.count
        return collective.cheapest(kind, size_bytes / count, shared_topology(self._topology, count))

    def run(self, exchange: Exchange) -> Pending:
        """Start `exchange`, whose sizes must be known; return its pending result."""
        many = self.comm.networked and self.comm.world_size > 1
        algorithm = self.algorithm(exchange) if many else "gloo"
        if algorithm == "gloo":
            return self.comm.run(exchange)
        device = self.comm.accelerator
        data = [device.to_host(tensor) for tensor in exchange.data]
        pending = self._begin(algorithm, exchange, data)
        if exchange.kind == "all_reduce":
            return pending.then(lambda found: [device.back(exchange.data[0], found[0])])
        is_staged = data[0] is not exchange.data[0]
        return pending.then(lambda found: [tensor.to(device.device) for tensor in found]) if is_staged else pending

    def _begin(self, algorithm: str, exchange: Exchange, data: Sequence[Tensor]) -> Pending:
        """Start an exchange of `data`, which lies in the host's memory."""
        size = sum(tensor.nbytes for tensor in data)
        what = f"{exchange.kind} of {size} bytes by {algorithm}"
        if exchange.kind == "all_reduce":
            return self.comm.submit(what, lambda peers: self._all_reduce(algorithm, peers, data[0], exchange.op))
        if algorithm in collective.SUMS_ALONE:
            raise ValueError(f"collective={algorithm}: carries sums alone, not an {exchange.kind}")
        sizes = exchange.sizes
        assert sizes is not None, "the reducer asks for sizes first"
        if exchange.kind == "all_gather":
            return self.comm.submit(what, lambda peers: self._all_gather(algorithm, peers, data[0], sizes))
        return self.comm.submit(what, lambda peers: all_to_all(peers, data, sizes))

    def broadcast(self, tensor: Tensor) -> Pending:
        """Start to overwrite `tensor` with rank 0's; return it as pending.

        It goes along the ring of `nccl_ring`, as NCCL's does, and otherwise down gloo's tree.
        """
        if self.name != collective.NCCL_RING or self.comm.world_size == 1:
            return self.comm.broadcast(tensor)

        sent = self.comm.accelerator.to_host(tensor)

        def along(peers: Peers) -> list[Tensor]:
            self._sockets().broadcast(sent, self.comm.charge, self.comm.host.segment_wall_s)
            return [self.comm.accelerator.back(tensor, sent)]

        return self.comm.submit(f"broadcast of {tensor.nbytes} bytes by {self.name}", along)

    def _sockets(self) -> SocketRing:
        """Return the ring over sockets, whose ranks meet when they first need it."""
        self._ring = self._ring or SocketRing.of(self.comm, self._nccl)
        return self._ring

    def _all_reduce(self, algorithm: str, peers: Peers, tensor: Tensor, op: str) -> list[Tensor]:
        if algorithm == collective.NCCL_RING:
            self._sockets().all_reduce(tensor, op, self.comm.charge, self.comm.host.segment_wall_s)
        elif algorithm == collective.GLOO_RING:
            gloo_ring.all_reduce(peers, tensor, op, self._gloo, self.comm.host)
        elif algorithm == "ring":
            ring.all_reduce(peers, tensor, op)
        elif algorithm == "two_shot":
            two_shot.all_reduce(peers, tensor, op)
        else:
            leaders = ring.all_reduce if algorithm == "hierarchical" else two_shot.all_reduce
            hierarchical.all_reduce(peers, tensor, op, self.regions, leaders)
        return [tensor]

    def _all_gather(self, algorithm: str, peers: Peers, payload: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        if algorithm == "ring":
            return ring.all_gather_payloads(peers, payload, sizes)
        if algorithm == "two_shot":
            return two_shot.all_gather_payloads(peers, payload, sizes)
        return hierarchical.all_gather_payloads(peers, payload, sizes, self.regions)
