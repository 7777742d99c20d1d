"""Which directed links a message from one rank to another takes, and how long messages take that share them."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Topology

SEGMENT_BYTES = 1448
"""What a full frame carries of a TCP stream."""
FRAME_BYTES = 1514
"""A full frame as rates count it: with Ethernet, IP and TCP headers, time stamps included."""
WIRE_RATIO = FRAME_BYTES / SEGMENT_BYTES
INITIAL_WINDOW_BYTES = 10 * SEGMENT_BYTES
"""What TCP paces by before it has seen any rate (RFC 6928)."""
_HOP_S = 1e-6
"""Where no delay is set, the path with the fewest links wins."""


@dataclass(frozen=True)
class DirectedLink:
    name: str
    source: str
    target: str
    profile: LinkProfile = field(compare=False)


Path = tuple[DirectedLink, ...]


class Paths:
    """The paths that the emulated network takes: two regions with a link of their own use it, all else least delay."""

    def __init__(self, topology: Topology) -> None:
        self.regions = [node.region for node in topology.nodes]
        """Of each rank."""
        self._up: list[Path] = [()] * len(topology.nodes)
        self._down: list[Path] = [()] * len(topology.nodes)
        self._leaving: dict[str, list[DirectedLink]] = {region: [] for region in topology.regions}
        rank_of = {node.name: rank for rank, node in enumerate(topology.nodes)}
        for link in topology.links:
            for source, target, profile in link.directions():
                directed = DirectedLink(link.name, source, target, profile)
                if link.wan:
                    self._leaving[source].append(directed)
                elif source in rank_of:
                    self._up[rank_of[source]] = (directed,)
                else:
                    self._down[rank_of[target]] = (directed,)
        self._between = {region: self._from(region) for region in topology.regions}

    def between_regions(self, source: str, target: str) -> Path:
        return self._between[source][target]

    def up(self, rank: int) -> Path:
        """From a rank into its region."""
        return self._up[rank]

    def down(self, rank: int) -> Path:
        return self._down[rank]

    def between(self, source: int, target: int) -> Path:
        """From one rank to another."""
        wan = self.between_regions(self.regions[source], self.regions[target])
        return (*self._up[source], *wan, *self._down[target])

    def _from(self, start: str) -> dict[str, Path]:
        found: dict[str, Path] = {}
        count, queue = 0, list[tuple[float, int, str, Path]]([(0.0, 0, start, ())])
        while queue:
            delay_s, _, here, path = heapq.heappop(queue)
            if here in found:
                continue
            found[here] = path
            for link in self._leaving[here]:
                count += 1
                heapq.heappush(queue, (delay_s + link.profile.delay_s + _HOP_S, count, link.target, (*path, link)))
        for link in reversed(self._leaving[start]):  # of two links between the same regions the first is used
            found[link.target] = (link,)
        return found


@dataclass(frozen=True)
class Hosts:
    """What they add to what the network needs. The defaults add nothing."""

    message_s: float = 0.0
    """What a message costs besides the network."""
    paced: float = 0.0
    """Share of a round trip that TCP takes at least to send what it sends in one."""
    largest: float = 1.0
    """How many times as much the same connections have lately sent at once, by which they are paced."""

    def leaving_s(self, path: Path, size_bytes: float, rounds: int, carrying_s: float) -> float:
        """Until all of a message has left: what the busiest link needs, or longer if that is faster than TCP paces.

        Args:
            rounds: such messages that follow one another, each sent when one like it has come. Two leave in each round
                trip then, and a connection is paced by both. Ways back are taken to be as long as the path.
        """
        in_a_round_trip = min(rounds, 2)
        seen_bytes = max(self.largest * size_bytes, INITIAL_WINDOW_BYTES / in_a_round_trip)
        paced_s = self.paced * (2 * delay_s(path) + carrying_s) * size_bytes / seen_bytes / in_a_round_trip
        return max(carrying_s, paced_s)


IDEAL_HOSTS = Hosts()


def concurrent_s(messages: Iterable[tuple[Path, float]], hosts: Hosts = IDEAL_HOSTS, rounds: int = 1) -> float:
    """Seconds until all messages that set out together have arrived; links are shared evenly among their bytes.

    Args:
        messages: the path of each, and its bytes.
        rounds: as `Hosts.leaving_s` counts them.
    """
    kept = [(path, size) for path, size in messages if size > 0]
    load = defaultdict[DirectedLink, float](float)
    for path, size in kept:
        for link in path:
            load[link] += size
    return longest_s(kept, load, hosts, rounds)


def longest_s(
    messages: Iterable[tuple[Path, float]],
    load: Mapping[DirectedLink, float],
    hosts: Hosts = IDEAL_HOSTS,
    rounds: int = 1,
) -> float:
    """Of `messages`: latency, and what their busiest link needs for the `load` of bytes that share it."""

    def takes_s(path: Path, size: float) -> float:
        carrying_s = max(_carrying_s(path, load), _capped_s(path, size))
        return hosts.message_s + delay_s(path) + hosts.leaving_s(path, size, rounds, carrying_s)

    return max((takes_s(path, size) for path, size in set(messages)), default=0.0)


def wire_ratio(topology: Topology) -> float:
    """Return the bytes in full frames for each byte that they carry of a TCP stream."""
    return next((link.forward.wire_ratio for link in topology.links), WIRE_RATIO)


def delay_s(path: Path) -> float:
    return sum(link.profile.delay_s for link in path)


def _capped_s(path: Path, size: float) -> float:
    """Return what one connection needs for `size` bytes by its cap, if it has one."""
    caps_bit_s = [link.profile.flow_cap_bit_s for link in path if link.profile.flow_cap_bit_s is not None]
    return 8 * path[0].profile.wire_ratio * size / min(caps_bit_s) if caps_bit_s else 0.0


def _carrying_s(path: Path, load: Mapping[DirectedLink, float]) -> float:
    return max((8 * link.profile.wire_ratio * load[link] / link.profile.rate_bit_s for link in path), default=0.0)
