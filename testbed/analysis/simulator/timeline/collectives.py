"""Collectives as they pass in time: when each rank has its result, given when each rank has begun.

Rings and chains are followed message by message, for all ranks at once; the closed forms stand for all else.
"""

from __future__ import annotations

import numpy as np

from testbed.analysis.simulator.model.network import Indices, Network, Times
from testbed.analysis.simulator.model.traffic import messages_of
from testbed.analysis.simulator.timeline.rings import RECEIVES_AHEAD, Ring, RingOfOurs, UnderWay
from testbed.core.costs import collective

CHAIN, BROADCAST, REDUCTION = "chain", "broadcast", "reduction"
LIBRARY = "library"
"""All-reduces of the network's library over sockets, by its closed form."""
HALF = "half of an all_reduce"
"""Its reduce-scatter, or its all-gather, chains inside regions included: a kind that only the testbed's own algorithms
have. Both take as long, in regions whose workers have access links alike."""


class AllAtOnce(UnderWay):
    """gloo's all-to-all: every rank to every other one; first each tells each that there is room."""

    def __init__(self, network: Network, begin_s: Times, size: float) -> None:
        """
        Args:
            size: of what one rank sends to another.
        """
        self._begin_s, self._end_s = begin_s, begin_s
        self._network, self._size = network, size

    @property
    def now_s(self) -> float:
        return float(self._begin_s.mean())

    def advance(self) -> None:
        network, pairs = self._network, self._network.pairs
        region, last_s = pairs.region, np.full(len(pairs.delay_s), -np.inf)
        np.maximum.at(last_s, region, self._begin_s)
        free_s = network.free_s[pairs.slowest].reshape(pairs.delay_s.shape)
        is_asked_s = self._begin_s[:, None] + pairs.delay_s[region]
        leaves_s = np.maximum(is_asked_s, np.maximum(last_s, free_s.T[region]))
        carried_s = self._size * pairs.second_byte
        arrives_s = leaves_s + (carried_s + pairs.delay_s).T[region]
        given_s = np.full_like(pairs.delay_s, -np.inf)
        np.maximum.at(given_s, region, leaves_s)
        left_s = given_s.T + carried_s
        network.carry(pairs.slowest, given_s.T.ravel(), left_s.ravel(), left_s.ravel())
        self._end_s = arrives_s.max(axis=1) + network.message_s * (network.size - 1)
        self.is_done = True

    def end_s(self) -> Times:
        return self._end_s


class Chain(UnderWay):
    """Ours, from one rank to all or from all to one: each passes on chunk after chunk to its neighbour.

    In one step here each rank passes on a chunk, the second rank the one that the first passed on in the step before. A
    rank's part is over with its last chunk, and then its next collective begins, whatever ranks further on still do.
    """

    def __init__(self, network: Network, begin_s: Times, kind: str, root: int, size: float, chunk_bytes: float) -> None:
        towards = 1 if kind == BROADCAST else -1
        self._network, self._hops = network, network.hops(towards)
        self._chunks = collective.chain_chunks(size, network.size, chunk_bytes)
        self._size = size / self._chunks
        self._hops.begin(min(self._chunks, RECEIVES_AHEAD) * self._size)
        first = root if kind == BROADCAST else root - 1
        self._ranks: Indices = (first + towards * np.arange(network.size)) % network.size
        """By their place in the chain."""
        self._has_s, self._end_s = begin_s.copy(), begin_s.copy()
        """When each rank has the chunk that it passes on next, and what was the last thing it did."""
        self._room_s = np.repeat(begin_s[:, None], RECEIVES_AHEAD, axis=1)
        """When each rank said that there is room for a chunk, by the chunk's number."""
        self._steps, self._mean_s = 0, float(begin_s.mean())

    @property
    def now_s(self) -> float:
        return self._mean_s

    def advance(self) -> None:
        hops, network = self._hops, self._network
        places = self._places()
        ranks, receivers = self._ranks[places], self._ranks[places + 1]
        links, room = hops.slowest[ranks], (self._steps - places) % RECEIVES_AHEAD
        said_s = self._room_s[receivers, room]
        asked_s = said_s + network.behind_s(hops.slowest_back[ranks], said_s) + hops.back_s[ranks]
        leaves_s = np.maximum.reduce([self._has_s[ranks], asked_s, network.free_s[links]])
        carried_s = self._size * hops.second_byte[ranks]
        paced_s = hops.paced_s(self._size, network.paced)[ranks]
        left_s = leaves_s + np.maximum(carried_s, paced_s)
        queued_s = left_s if network.size == 2 else np.where(paced_s > carried_s, leaves_s, left_s)
        network.carry(links, leaves_s, left_s, queued_s, is_each_once=network.is_each_once(hops.slowest))
        self._end_s[ranks] = np.maximum(self._end_s[ranks], leaves_s)
        has_s = left_s + hops.delay_s[ranks] + network.message_s
        self._has_s[receivers] = self._room_s[receivers, room] = has_s
        self._end_s[receivers] = np.maximum(self._end_s[receivers], has_s)
        self._go_on()

    def _places(self) -> Indices:
        """Of the ranks that pass on a chunk in this step; the last one has nobody to pass it on to."""
        return np.arange(max(0, self._steps - self._chunks + 1), min(self._network.size - 1, self._steps + 1))

    def _go_on(self) -> None:
        self._steps += 1
        places = self._places()
        self.is_done = not len(places)
        if self.is_done:
            self._hops.end(min(self._chunks, RECEIVES_AHEAD) * self._size)
        else:
            self._mean_s = float(self._has_s[self._ranks[places]].mean())

    def end_s(self) -> Times:
        return self._end_s


class ClosedForm(UnderWay):
    """A collective that takes a time known before, and ends at the same time everywhere."""

    def __init__(self, begin_s: Times, takes_s: float) -> None:
        self._begin_s, self._takes_s = begin_s, takes_s

    @property
    def now_s(self) -> float:
        return float(self._begin_s.max())

    def advance(self) -> None:
        self.is_done = True

    def end_s(self) -> Times:
        return np.full_like(self._begin_s, self._begin_s.max() + self._takes_s)


def _own_s(network: Network, algorithm: str, kind: str, size: float) -> float:
    """Return the time of one of the testbed's own algorithms but the ring.

    The form counts messages alone. Before the first, its receiver says that there is room; for all others it says so
    ahead.
    """
    notice_s = float(network.pairs.delay_s.max())
    whole, share = ("all_reduce", 0.5) if kind == HALF else (kind, 1.0)
    hosts, size = network.hosts(algorithm, whole, size), size / network.constants.goodput
    return notice_s + share * collective.seconds(algorithm, whole, size, network.topology, hosts=hosts)


def message_bytes(network: Network, algorithm: str, kind: str, size: float) -> float | None:
    """Return the bytes that are cut among connections at once; None: an all-to-all of gloo's, which is cut unseen.

    gloo is given whole tensors; the testbed's own algorithms cut each message. Of the hierarchical ones it is that
    between leaders.
    """
    if algorithm == "gloo":
        return None if kind == "all_to_all" else size
    if kind == "all_gather":
        return size
    is_hierarchical = algorithm.startswith("hierarchical") and kind != "all_to_all"
    return size / (len(collective.ranks_of_regions(network.topology)) if is_hierarchical else network.size)


def begin(
    network: Network,
    algorithm: str,
    kind: str,
    size: float,
    begin_s: Times,
    root: int | None = None,
    chunk_bytes: float = collective.CHAIN_CHUNK_BYTES,
) -> UnderWay:
    """
    Args:
        size: as in `core.costs.collective`.
        root, chunk_bytes: of a chain.
    """
    if algorithm == CHAIN:
        assert root is not None
        return Chain(network, begin_s, kind, root, size, chunk_bytes)
    if kind == BROADCAST:
        library = network.library or (network.nccl if algorithm == collective.NCCL_RING else network.gloo)
        return ClosedForm(begin_s, library.broadcast_s(size, network.cluster))
    if algorithm == LIBRARY:
        assert network.library is not None
        return ClosedForm(begin_s, network.library.all_reduce_s(size, network.cluster))
    if algorithm == collective.NCCL_RING:
        return ClosedForm(begin_s, network.nccl.all_reduce_s(size, network.cluster))
    rounds = network.size - 1
    if algorithm == collective.GLOO_RING:
        messages = network.gloo.segments(size, network.size)
        each = messages * rounds // network.size
        return Ring(network, begin_s, -1, 2, each, size / messages, host_s=network.host.segment_s)
    if algorithm == "ring" and kind == "all_gather":
        return RingOfOurs(network, begin_s, rounds, size)
    if algorithm == "ring" and kind != "all_to_all":
        return RingOfOurs(network, begin_s, rounds if kind == HALF else 2 * rounds, size / network.size)
    if algorithm != "gloo":
        return ClosedForm(begin_s, _own_s(network, algorithm, kind, size))
    if kind == "all_to_all":
        return AllAtOnce(network, begin_s, size / network.size)
    messages = messages_of(kind, size, network.size)
    if kind == "all_gather":
        return Ring(network, begin_s, 1, 1, messages * rounds, size / messages)
    return Ring(network, begin_s, -1, 2, messages * rounds // network.size, size / messages)
