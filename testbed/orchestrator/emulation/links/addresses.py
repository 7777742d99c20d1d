"""Addresses and routes of a topology: pure arithmetic.

10.63.l.0/31 and 10.63.l.2/31   WAN link l: region a's router - middle, middle - region b's router
10.(64+r).h.l/31                 access links of region r, the router even, the node odd; one route a region
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from testbed.core.errors import InputError
from testbed.core.spec.topology import Link, Topology

MAX_REGIONS = 128
MAX_WAN_LINKS = 256


@dataclass(frozen=True)
class Pair:
    """Both ends of a point-to-point wire, as /31."""

    near: IPv4Address
    far: IPv4Address


@dataclass(frozen=True)
class WanAddresses:
    """Of one WAN link: router of `a` to the middle, and the middle to router of `b`."""

    a_side: Pair
    b_side: Pair


class AddressPlan:
    """Every address of a topology, and for every router the way to every other region."""

    def __init__(self, topology: Topology) -> None:
        if len(topology.regions) > MAX_REGIONS or len(topology.wan_links) > MAX_WAN_LINKS:
            raise InputError(
                f"topology {topology.name}: {len(topology.regions)} regions and {len(topology.wan_links)} WAN links;"
                f" the address plan holds {MAX_REGIONS} and {MAX_WAN_LINKS}"
            )
        self.topology = topology
        self.region_network = {
            region: IPv4Network(f"10.{64 + index}.0.0/16") for index, region in enumerate(topology.regions)
        }
        self.worker_regions = {node.region for node in topology.nodes}
        self.access: dict[str, Pair] = {}
        """Of each node: near is the router's end, far the node's."""
        used = dict.fromkeys(topology.regions, 0)
        for node in topology.nodes:
            base = self.region_network[node.region][2 * used[node.region]]
            used[node.region] += 1
            self.access[node.name] = Pair(base, base + 1)
        self.wan = {link.name: self._wan(index) for index, link in enumerate(topology.wan_links)}

    @staticmethod
    def _wan(index: int) -> WanAddresses:
        base = IPv4Address(f"10.63.{index}.0")
        return WanAddresses(Pair(base, base + 1), Pair(base + 3, base + 2))

    def node_address(self, node: str) -> IPv4Address:
        return self.access[node].far

    def next_links(self, region: str) -> dict[str, Link]:
        """For every other region the WAN link on which the path to it leaves `region`.

        A link of their own is taken by two regions that have one, even where a detour would be shorter: measured
        matrices break the triangle inequality, and what was measured was the direct path. All else takes the path of
        least delay.
        """
        first: dict[str, Link] = {}
        queue: list[tuple[float, int, str, Link | None]] = [(0.0, 0, region, None)]
        done: set[str] = set()
        count = 0
        while queue:
            delay_s, _, here, via = heapq.heappop(queue)
            if here in done:
                continue
            done.add(here)
            if via is not None:
                first[here] = via
            for link in self.topology.wan_links:
                for start, end, profile in link.directions():
                    if start == here and end not in done:
                        count += 1
                        # a hop costs a little even where no delay is set, so that the shortest path wins
                        heapq.heappush(queue, (delay_s + profile.delay_s + 1e-6, count, end, via or link))
        for link in reversed(self.topology.wan_links):  # of two between the same regions the first counts
            for start, end, _ in link.directions():
                if start == region:
                    first[end] = link
        return first
