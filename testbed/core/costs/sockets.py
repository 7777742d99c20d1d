"""Collectives of NCCL and of Gloo over TCP sockets, in closed form: their seconds on nodes that are all alike.

The forms follow from how both libraries send (docs/decisions/0067-closed-forms-of-nccl-and-gloo.md); numbers that were
fitted to published measurements say so. Sizes are in bytes of payload, rates in bit/s of frames, times in seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Protocol

from testbed.core.device.host_costs import HostCosts
from testbed.core.spec.link_profile import ETHERNET_BYTES, TCP_IP_BYTES
from testbed.core.spec.paths import SEGMENT_BYTES, Paths, delay_s
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.topology import Topology

MIB = 2**20
WINDOW_BYTES = 2.75e6
"""Most bytes in flight on one TCP connection of an untuned Linux: 2.5 to 3.05 MB on three published clusters."""
_SIZES = ("chunk_bytes", "slice_bytes", "chain_chunk_bytes", "piece_bytes")
"""Fields of `Nccl` that shrink with what is sent."""
INITIAL_SEGMENTS = 10
"""Segments that a TCP connection sends before the first acknowledgement (RFC 6928)."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes with one network interface each, all alike, that reach one another in the same time.

    Args:
        rate_bit_s: Rate of an interface, each way. Counts frames, as tc does.
        round_trip_s: Round trip between two nodes: twice the delay where each interface delays what it sends.
        mtu_bytes: Largest IP packet.
        flow_cap_bit_s: Most that one TCP connection carries, whatever the interface's rate.
        window_bytes: Most bytes in flight on one TCP connection.
    """

    nodes: int
    rate_bit_s: float
    round_trip_s: float
    mtu_bytes: int = 1500
    flow_cap_bit_s: float = math.inf
    window_bytes: float = WINDOW_BYTES

    @property
    def wire_ratio(self) -> float:
        """Bytes on the wire for each byte of payload."""
        return (self.mtu_bytes + ETHERNET_BYTES) / (self.mtu_bytes - TCP_IP_BYTES)

    def reached_bit_s(self, connections: int) -> float:
        """Return the rate that `connections` to one peer reach together."""
        window_bit_s = math.inf
        if self.round_trip_s > 0:
            window_bit_s = 8 * self.wire_ratio * self.window_bytes / self.round_trip_s
        return min(self.rate_bit_s, connections * min(self.flow_cap_bit_s, window_bit_s))

    @classmethod
    def of(cls, topology: Topology) -> Cluster:
        """Return a network's ring as a closed form takes it: the rate of its slowest hop, the mean of round trips."""
        paths, size = Paths(topology), len(topology.nodes)
        there = [paths.between(rank, (rank + 1) % size) for rank in range(size)]
        back = [paths.between((rank + 1) % size, rank) for rank in range(size)]
        load = Counter(link for path in there for link in path)
        return cls(
            nodes=size,
            rate_bit_s=min((link.profile.rate_bit_s / count for link, count in load.items()), default=math.inf),
            round_trip_s=sum(map(delay_s, (*there, *back))) / size,
            mtu_bytes=topology.mtu_bytes,
            flow_cap_bit_s=topology.flow_cap_bit_s or math.inf,
        )

    def carrying_s(self, size_bytes: float, connections: int) -> float:
        """Return the time that `size_bytes` take to leave over `connections`, without delay."""
        return 8 * self.wire_ratio * size_bytes / self.reached_bit_s(connections)

    def slow_start_s(self, connections: int) -> float:
        """Return the time that new connections lose until their windows fill the path: they double each round trip."""
        in_flight_bytes = self.reached_bit_s(connections) * self.round_trip_s / 8 / self.wire_ratio
        first_bytes = connections * INITIAL_SEGMENTS * (self.mtu_bytes - TCP_IP_BYTES)
        if in_flight_bytes <= first_bytes:
            return 0.0
        return self.round_trip_s * (math.log2(in_flight_bytes / first_bytes) - 1 + first_bytes / in_flight_bytes)


class SocketLibrary(Protocol):
    """A library whose collectives have closed forms; each takes bytes of a tensor and the cluster."""

    def all_reduce_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of an all-reduce by a ring."""

    def broadcast_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of a broadcast from one node, until the last has it."""

    def reduce_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of a sum at one node."""

    def send_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of one message between two nodes, until it has arrived."""


_GOOGLE_THREADS = 4
"""NCCL's threads on Google's machines, with one socket each."""


@dataclass(frozen=True, kw_only=True)
class Nccl:
    """NCCL with one GPU a node and its network plug-in for sockets; defaults as on AWS.

    Args:
        channels: Rings side by side, each with half of a tensor where there are two.
        sockets: Data sockets of a channel to one peer (NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD).
        threads: Threads that serve these sockets, each as many. Closed forms have no queues that drop, so none.
        chunk_bytes: Bytes of a channel that travel round the ring together, in an all-reduce.
        slice_bytes: Part of a chunk that is passed on as soon as it has arrived, in an all-reduce.
        chain_chunk_bytes: Chunk and slice of a broadcast and of a reduction.
        slices_ahead: Slices that a proxy posts ahead, to send and to receive.
        piece_bytes: Least bytes of a slice that one socket takes.
        start_round_trips: Round trips before an all-reduce is at full speed and after its last byte; half of one is
            the last hop, the rest was fitted.
        chain_start_round_trips: Round trips that a broadcast or reduction takes besides its hops; fitted.
        host_s: Time from a slice's arrival until its channel passes it on, one after another.
    """

    channels: int = 2
    sockets: int = 16
    threads: int = 2
    chunk_bytes: int = 2 * MIB
    slice_bytes: int = MIB
    chain_chunk_bytes: int = MIB // 2
    slices_ahead: int = 4
    piece_bytes: int = 64 * 1024
    start_round_trips: float = 2.5
    chain_start_round_trips: float = 2.0
    host_s: float = 0.0

    @property
    def connections(self) -> int:
        """Number of data sockets to one peer, over all channels."""
        return self.channels * self.sockets

    @classmethod
    def of(cls, spec: RunSpec) -> Nccl:
        """Return the library as a run's ring over sockets has it: with its connections, and sizes by its scale."""
        host_s = HostCosts.of(spec.device).segment_s
        sockets = cls.sockets if spec.connections is None else spec.connections // cls.channels
        threads = sockets if sockets <= _GOOGLE_THREADS else cls.threads
        return cls(sockets=sockets, threads=threads, host_s=host_s).scaled(spec.scale)

    def scaled(self, scale: float) -> Nccl:
        """Return the library for tensors and links that are `scale` times smaller: as many messages, each smaller."""
        if scale == 1:
            return self
        sizes = {name: max(SEGMENT_BYTES, round(getattr(self, name) / scale)) for name in _SIZES}
        return replace(self, **sizes)

    def all_reduce_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of an all-reduce by a ring.

        Every slice received starts one that is sent, so a chunk of each channel circulates. While its time on the wire
        is longer than a round trip, the delay costs nothing.
        """
        nodes, round_trip_s = cluster.nodes, cluster.round_trip_s
        if nodes < 2:
            return 0.0
        slices = self.chunk_bytes / self.slice_bytes
        chunks_bytes = min(self.channels * self.chunk_bytes, size_bytes / nodes)
        chunks_s = cluster.carrying_s(chunks_bytes, self.connections)
        circling_s = chunks_s / slices + round_trip_s / 2 + self.host_s
        sends = 2 * (nodes - 1) * size_bytes / nodes / chunks_bytes if chunks_bytes else 2 * (nodes - 1)
        return sends * max(chunks_s, circling_s, slices * self.host_s) + self.start_round_trips * round_trip_s

    def broadcast_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of a broadcast along a chain of all nodes.

        A slice has fewer pieces than there are sockets, so several slices leave together, and come together. Each node
        but the first takes its host's time for each slice. Only those for the first slice add up along the chain.
        """
        if cluster.nodes < 2:
            return 0.0
        passed_bytes = max(self.chain_chunk_bytes, self.sockets * self.piece_bytes)  # what all sockets take at once
        filled_bytes = (cluster.nodes - 2) * self.channels * passed_bytes
        hops_s = (cluster.nodes - 1) * (cluster.round_trip_s / 2 + self.host_s)
        later = max(0, math.ceil(size_bytes / self.channels / self.chain_chunk_bytes) - 1)
        carried_s = max(cluster.carrying_s(size_bytes, self.connections), later * self.host_s)
        filled_s = cluster.carrying_s(filled_bytes, self.connections)
        return carried_s + filled_s + hops_s + self.chain_start_round_trips * cluster.round_trip_s

    def reduce_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of a sum along a chain, which takes as long as a broadcast."""
        return self.broadcast_s(size_bytes, cluster)

    def send_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of one message over new connections."""
        return _first_message_s(size_bytes, cluster, self.connections)


@dataclass(frozen=True, kw_only=True)
class Gloo:
    """Gloo over one TCP connection a pair of nodes.

    Args:
        segment_bytes: Most bytes of a ring's message.
        in_flight: Segments of a ring that are under way at once.
        host_s: Time that a host takes for a segment, one after another: copies, sums and waking up; fitted on AWS.
        queued_share: Share of a segment's time that its receiver's ready message waits behind data; fitted.
    """

    segment_bytes: int = MIB
    in_flight: int = 2
    host_s: float = 0.9e-3
    queued_share: float = 0.16

    @classmethod
    def of(cls, spec: RunSpec) -> Gloo:
        """Return the library as a run's ring of segments has it: sizes by its scale, the host's time by its device."""
        return cls(segment_bytes=max(1, round(MIB / spec.scale)), host_s=HostCosts.of(spec.device).segment_s)

    def all_reduce_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of an all-reduce by a ring; a segment leaves once its receiver says that it is ready."""
        nodes, round_trip_s = cluster.nodes, cluster.round_trip_s
        if nodes < 2:
            return 0.0
        segments = self.segments(size_bytes, nodes)
        segment_s = cluster.carrying_s(size_bytes / segments, 1)
        waited_s = round_trip_s + (1 + self.queued_share) * segment_s + self.host_s
        period_s = max(self.in_flight * max(segment_s, self.host_s), waited_s)
        rounds = 2 * (nodes - 1) / nodes * segments / self.in_flight
        return rounds * period_s + self.in_flight * (round_trip_s + segment_s)

    def segments(self, size_bytes: float, nodes: int) -> int:
        """Return the number of segments that a tensor is cut into: a multiple of the nodes, two for each at least."""
        wanted = math.ceil(size_bytes / self.segment_bytes)
        return nodes * max(self.in_flight, math.ceil(wanted / nodes))

    def broadcast_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of a broadcast down a binomial tree: whole messages, to all children at once."""
        if cluster.nodes < 2:
            return 0.0
        levels = math.ceil(math.log2(cluster.nodes))
        carried_s = sum(cluster.carrying_s(children * size_bytes, children) for children in range(1, levels + 1))
        return carried_s + cluster.round_trip_s

    def reduce_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of a sum at one node: a ring's reduce-scatter, then all parts at once to that node.

        Measured times say that ready messages do not wait behind data here; why was not found.
        """
        if cluster.nodes < 2:
            return 0.0
        segments = self.segments(size_bytes, cluster.nodes)
        segment_s = cluster.carrying_s(size_bytes / segments, 1)
        period_s = max(self.in_flight * max(segment_s, self.host_s), cluster.round_trip_s + self.host_s)
        ring_s = (segments - self.in_flight) / self.in_flight * period_s
        others = cluster.nodes - 1
        gathered_s = cluster.carrying_s(others / cluster.nodes * size_bytes, others)
        return ring_s + gathered_s + self.in_flight * (cluster.round_trip_s + segment_s)

    def send_s(self, size_bytes: float, cluster: Cluster) -> float:
        """Return the time of one message over a new connection."""
        return _first_message_s(size_bytes, cluster, 1)


def _first_message_s(size_bytes: float, cluster: Cluster, connections: int) -> float:
    carried_s = cluster.carrying_s(size_bytes, connections)
    return carried_s + cluster.slow_start_s(connections) + cluster.round_trip_s / 2


NCCL, GLOO = Nccl(), Gloo()
LIBRARIES: dict[str, SocketLibrary] = {"nccl": NCCL, "gloo": GLOO}


def least_part_bytes(scale: float) -> float:
    """Return the least bytes of a part of a message that goes over several of gloo's connections, as NCCL's piece."""
    return max(SEGMENT_BYTES, NCCL.piece_bytes / scale)


def libraries(spec: RunSpec) -> tuple[Nccl, Gloo]:
    """Return both as a run's rings that are like theirs have them."""
    return Nccl.of(spec), Gloo.of(spec)
