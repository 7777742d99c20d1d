"""The ways of a collective's messages: which links they take, how fast, how late. Arrays over ranks or regions."""

from __future__ import annotations

import copy
import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.analysis.simulator.model.constants import PACED, Constants
from testbed.core.costs import collective
from testbed.core.costs.sockets import GLOO, LIBRARIES, NCCL, Cluster, Gloo, Nccl
from testbed.core.device.host_costs import NO_COSTS, HostCosts
from testbed.core.spec.connections import part_count
from testbed.core.spec.paths import INITIAL_WINDOW_BYTES, DirectedLink, Hosts, Path, Paths, delay_s
from testbed.core.spec.scale import shared_topology
from testbed.core.spec.topology import Topology

Times = npt.NDArray[np.float64]
"""One number a rank, in emulated seconds, if nothing else is said."""
Indices = npt.NDArray[np.intp]
REMEMBERED = 4
"""Messages over a link that may still be ahead of a notice: two of each of two collectives."""


@dataclass
class Hops:
    """Every rank sends to the one `towards` ranks further."""

    towards: int
    delay_s: Times
    """From each sender to its receiver."""
    back_s: Times
    """From the receiver back."""
    second_byte: Times
    """Seconds one byte of payload takes on the slowest link, shared among the hops of this ring."""
    slowest: Indices
    """That link."""
    slowest_back: Indices
    """Likewise, of the way back."""
    round_bytes: float = 0.0
    """The most that was under way at once from each sender, since the beginning."""
    _under_way_bytes: float = 0.0

    def __post_init__(self) -> None:
        ranks = np.arange(len(self.delay_s))
        self._receivers, self._senders = np.roll(ranks, -self.towards), np.roll(ranks, self.towards)

    def at_sender(self, values: Times) -> Times:
        """Values of receivers, each at the place of who sends to it."""
        return values[self._receivers]

    def at_receiver(self, values: Times) -> Times:
        return values[self._senders]

    def begin(self, size: float) -> None:
        self._under_way_bytes += size
        self.round_bytes = max(self.round_bytes, self._under_way_bytes)

    def end(self, size: float) -> None:
        self._under_way_bytes -= size

    def paced_s(self, size: float, paced: float) -> Times:
        """What a message takes at least to leave."""
        seen_s = self.delay_s + self.back_s + self.round_bytes * self.second_byte
        return paced * seen_s * size / max(self.round_bytes, INITIAL_WINDOW_BYTES)


@dataclass(frozen=True)
class Pairs:
    """Every rank sends to every other one. Matrices over regions, from row to column."""

    region: Indices
    """Of each rank."""
    delay_s: Times
    second_byte: Times
    """Seconds that one byte to each rank takes, with all that shares the slowest link of the path."""
    slowest: Indices
    """One row after another."""


class Network:
    """One topology, and until when its links are busy."""

    def __init__(
        self,
        topology: Topology,
        constants: Constants,
        *,
        tcp: str = "stock",
        dilation: float = 1.0,
        library: str | None = None,
        nccl: Nccl = NCCL,
        gloo: Gloo = GLOO,
        host: HostCosts = NO_COSTS,
        connections: int = 1,
        least_part_bytes: float = NCCL.piece_bytes,
    ) -> None:
        """
        Args:
            topology: as all connections to a peer have it together.
            nccl, gloo: by what rings send that are like theirs.
            host: of the emulated device.
            connections: among so many messages are cut.
            least_part_bytes: of a message that is cut.
            tcp: the profile of the run.
            dilation: of the run that is predicted, since what the hosts do takes wall time.
            library: one of `LIBRARIES`, whose closed forms all-reduces of gloo take on real machines.
        """
        self._whole, self.constants, self._least_part_bytes = topology, constants, least_part_bytes
        self.library = None if library is None else LIBRARIES[library]
        self.nccl, self.gloo, self.host, self.connections = nccl, gloo, host, connections
        self.paced = PACED.get(tcp, 0.0)
        self.message_s = constants.message_s / dilation
        self.size = len(topology.nodes)
        self._share(connections)
        self.free_s: Times = np.full(len(self._index) + 1, -np.inf)
        """Of each directed link, when the last byte of what it was given has left; the last one stands for none."""
        self._given_s = np.full((REMEMBERED, len(self.free_s)), np.inf)
        self._left_s = np.full((REMEMBERED, len(self.free_s)), -np.inf)
        """Of the last messages over each link, when they came to it and when they had left."""
        self._carried: list[Indices] = [np.zeros(0, dtype=np.intp)] * REMEMBERED
        """By row, what it holds."""
        self._each_once: dict[int, tuple[Indices, bool]] = {}
        self._row = itertools.count(1)
        self._of_parts: dict[int, Network] = {connections: self}

    def _share(self, parts: int) -> None:
        """Have the network as one of so many parts of a message has it."""
        self.topology = shared_topology(self._whole, parts)
        self.paths = Paths(self.topology)
        self._index: dict[DirectedLink, int] = {}
        for link in self.topology.links:
            for source, target, profile in link.directions():
                self._index[DirectedLink(link.name, source, target, profile)] = len(self._index)
        self._hops: dict[int, Hops] = {}
        self._largest: dict[tuple[str, str], float] = {}

    def of_parts(self, parts: int) -> Network:
        """Return the network as one of so many parts of a message has it; its links are busy with those of others."""
        if parts not in self._of_parts:
            one = self._of_parts[parts] = copy.copy(self)
            for cached in ("cluster", "pairs"):
                one.__dict__.pop(cached, None)
            one._share(parts)
        return self._of_parts[parts]

    def parts(self, size: float) -> int:
        """Return in how many parts a message of `size` goes."""
        return part_count(size, self.connections, self._least_part_bytes)

    def hops(self, towards: int) -> Hops:
        if towards not in self._hops:
            self._hops[towards] = self._ring(towards)
        return self._hops[towards]

    def hosts(self, algorithm: str, kind: str, size: float) -> Hosts:
        """Of the next collective of `size`; all of one algorithm and kind use the same connections."""
        largest = self._largest[algorithm, kind] = max(self._largest.get((algorithm, kind), 0.0), size)
        return Hosts(self.message_s, self.paced, largest / size if size else 1.0)

    @functools.cached_property
    def cluster(self) -> Cluster:
        """The ring as a closed form takes it."""
        return Cluster.of(self.topology)

    @property
    def has_hops_alike(self) -> bool:
        """True if all hops of the ring have the same rate and delay."""
        hops = self.hops(1)
        return all(float(np.ptp(one)) <= 1e-9 * float(one.max()) for one in (hops.second_byte, hops.delay_s))

    @functools.cached_property
    def pairs(self) -> Pairs:
        members = collective.ranks_of_regions(self.topology)
        region, load = np.zeros(self.size, dtype=np.intp), Counter[DirectedLink]()
        for index, ranks in enumerate(members):
            region[ranks] = index
            for rank in ranks:
                load.update(dict.fromkeys((*self.paths.up(rank), *self.paths.down(rank)), self.size - 1))
        paths = [[self.paths.between(a[0], b[0]) for b in members] for a in members]
        for a in members:
            for b in members:
                wan = self.paths.between_regions(self.paths.regions[a[0]], self.paths.regions[b[0]])
                load.update(dict.fromkeys(wan, len(a) * len(b)))
        slowest = [[self._slowest(path, load) for path in row] for row in paths]
        return Pairs(
            region,
            np.array([[delay_s(path) for path in row] for row in paths]),
            np.array([[seconds for seconds, _ in row] for row in slowest]),
            np.array([index for row in slowest for _, index in row], dtype=np.intp),
        )

    def carry(
        self, links: Indices, given_s: Times, left_s: Times, queued_s: Times, *, is_each_once: bool | None = None
    ) -> None:
        """Messages occupy `links` until `left_s`, and queues in front of them until `queued_s`.

        Args:
            is_each_once: whether no link is among them twice; None: `links` is an array that comes again and again.
        """
        row = next(self._row) % REMEMBERED
        given, left, before = self._given_s[row], self._left_s[row], self._carried[row]
        given[before], left[before] = np.inf, -np.inf
        self._carried[row] = links
        if self.is_each_once(links) if is_each_once is None else is_each_once:
            self.free_s[links] = np.maximum(self.free_s[links], left_s)
            given[links], left[links] = given_s, queued_s
            return
        np.maximum.at(self.free_s, links, left_s)
        np.minimum.at(given, links, given_s)
        np.maximum.at(left, links, queued_s)

    def times(self, links: Indices) -> list[Times]:
        """What `links` are busy with and remember."""
        return [self.free_s[links], *self._given_s[:, links], *self._left_s[:, links]]

    def move(self, links: Indices, shift_s: float) -> None:
        """All that is known of `links` comes later."""
        once = np.unique(links)
        self.free_s[once] += shift_s
        self._given_s[:, once] += shift_s
        self._left_s[:, once] += shift_s

    def is_each_once(self, links: Indices) -> bool:
        """Arrays of links are made once for each kind of collective, so their answer is kept by identity."""
        known = self._each_once.get(id(links))
        if known is None:
            known = self._each_once[id(links)] = links, len(np.unique(links)) == len(links)
        return known[1]

    def behind_s(self, links: Indices, now_s: Times) -> Times:
        """How long what comes to `links` at `now_s` waits behind messages that were there before."""
        is_before = self._given_s[:, links] <= now_s
        waits_s: Times = np.where(is_before, self._left_s[:, links] - now_s, 0.0).max(axis=0, initial=0.0)
        return waits_s

    def _ring(self, towards: int) -> Hops:
        """Return the hops of a ring; each is one connection."""
        ranks = range(self.size)
        there = [self.paths.between(rank, (rank + towards) % self.size) for rank in ranks]
        back = [self.paths.between((rank + towards) % self.size, rank) for rank in ranks]
        load = Counter(link for path in there for link in path)
        slowest = [self._slowest(path, load) for path in there]
        return Hops(
            towards,
            np.array([delay_s(path) for path in there]),
            np.array([delay_s(path) for path in back]),
            np.array([seconds for seconds, _ in slowest]),
            np.array([index for _, index in slowest], dtype=np.intp),
            np.array([self._slowest(path, Counter(path))[1] for path in back], dtype=np.intp),
        )

    def _slowest(self, path: Path | Sequence[DirectedLink], load: Mapping[DirectedLink, float]) -> tuple[float, int]:
        """Seconds a byte, and the link's index."""
        if not path:
            return 0.0, len(self._index)
        return max((max(load[link] * self._second_byte(link), self._capped(link)), self._index[link]) for link in path)

    def _capped(self, link: DirectedLink) -> float:
        """Return the seconds of a byte of one connection by its cap, if it has one."""
        cap_bit_s = link.profile.flow_cap_bit_s
        return 8 * link.profile.wire_ratio / (self.constants.goodput * cap_bit_s) if cap_bit_s else 0.0

    def _second_byte(self, link: DirectedLink) -> float:
        return 8 * link.profile.wire_ratio / (self.constants.goodput * link.profile.rate_bit_s)
