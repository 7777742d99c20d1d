"""A network as plain data: regions, nodes, WAN links between regions, access links of nodes to their region.

Each direction of a link has its own profile. A user writes a round-trip time; `symmetric` halves it once, here, so
that no other place can double it. Every profile says where its numbers come from, or "assumed".
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.core.errors import raise_input_faults

LEAST_RATE_BIT_S, MOST_RATE_BIT_S = 1e4, 1e10
"""Below, one frame takes a second; above, no machine this was tried on carries it."""


@dataclass(frozen=True, kw_only=True)
class LinkProfile:
    """One direction of a link."""

    rate_bit_s: float
    """Capacity, Ethernet header included."""
    delay_s: float = 0.0
    """One way."""
    jitter_s: float = 0.0
    """Half the width of a uniform spread around `delay_s`; packets are not reordered."""
    loss_ratio: float = 0.0
    """0 to 1."""
    limit_bytes: int = 0
    """Queue in front of the rate limit; 0 means one bandwidth-delay product, at least four bursts."""
    source: str
    """Where the numbers come from, with a date, or "assumed: why"."""

    def faults(self, where: str) -> Iterator[str]:
        if not LEAST_RATE_BIT_S <= self.rate_bit_s <= MOST_RATE_BIT_S:
            known = f"from {LEAST_RATE_BIT_S:g} to {MOST_RATE_BIT_S:g}"
            yield f"{where}: rate must be {known} bit/s, found {self.rate_bit_s:g}"
        if not (math.isfinite(self.delay_s) and 0 <= self.delay_s <= 5):
            yield f"{where}: one-way delay must be from 0 to 5 s, found {self.delay_s:g} s"
        if not 0 <= self.jitter_s <= max(self.delay_s, 0):
            yield f"{where}: jitter must be from 0 to the delay, found {self.jitter_s:g} s"
        if not 0 <= self.loss_ratio < 1:
            yield f"{where}: loss must be from 0 to below 1, found {self.loss_ratio:g}"
        if self.limit_bytes < 0:
            yield f"{where}: queue limit must not be negative, found {self.limit_bytes}"
        if not self.source.strip():
            yield f"{where}: says no source for its numbers; write one, or 'assumed: why'"


@dataclass(frozen=True, kw_only=True)
class Link:
    """A duplex link between `a` and `b`: two regions (WAN), or a node and its region (access)."""

    name: str
    a: str
    b: str
    wan: bool
    forward: LinkProfile
    """From `a` to `b`."""
    backward: LinkProfile
    """From `b` to `a`."""

    @property
    def rtt_s(self) -> float:
        return self.forward.delay_s + self.backward.delay_s

    def directions(self) -> tuple[tuple[str, str, LinkProfile], tuple[str, str, LinkProfile]]:
        """Both directions as (from, to, profile)."""
        return (self.a, self.b, self.forward), (self.b, self.a, self.backward)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A place for one worker."""

    name: str
    region: str


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Regions, nodes and links. Rank r runs on `nodes[r]`.

    Raises:
        InputError: names clash, an end of a link is unknown, the graph is not connected, a number is out of range.
    """

    name: str
    regions: tuple[str, ...]
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        raise_input_faults(self._faults())

    def _faults(self) -> Iterator[str]:
        names = [*self.regions, *(node.name for node in self.nodes)]
        for name in sorted(name for name, count in Counter(names).items() if count > 1):
            yield f"topology {self.name}: the name {name!r} is used more than once"
        known = set(names)
        for link in self.links:
            for end in (link.a, link.b):
                if end not in known:
                    yield f"topology {self.name}: link {link.name} ends at {end!r}, neither a region nor a node"
            for start, end, profile in link.directions():
                yield from profile.faults(f"topology {self.name}: link {link.name} from {start} to {end}")
        for node in self.nodes:
            if node.region not in self.regions:
                yield f"topology {self.name}: node {node.name} is in region {node.region!r}, which does not exist"
        lost = known - self._reachable()
        if lost:
            yield f"topology {self.name}: no path to {', '.join(sorted(lost))}"

    def _reachable(self) -> set[str]:
        seen: set[str] = set()
        frontier = [self.regions[0]] if self.regions else []
        while frontier:
            here = frontier.pop()
            seen.add(here)
            for link in self.links:
                for end, other in ((link.a, link.b), (link.b, link.a)):
                    if end == here and other not in seen:
                        frontier.append(other)
        return seen

    @property
    def wan_links(self) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.wan)

    @property
    def access_links(self) -> tuple[Link, ...]:
        return tuple(link for link in self.links if not link.wan)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Topology:
        links = tuple(
            Link(**{**link, "forward": LinkProfile(**link["forward"]), "backward": LinkProfile(**link["backward"])})
            for link in data["links"]
        )
        return cls(
            name=data["name"],
            regions=tuple(data["regions"]),
            nodes=tuple(Node(**node) for node in data["nodes"]),
            links=links,
        )


def symmetric(
    name: str,
    a: str,
    b: str,
    *,
    wan: bool,
    rate_bit_s: float,
    rtt_s: float,
    source: str,
    loss_ratio: float = 0.0,
    jitter_s: float = 0.0,
) -> Link:
    """A link that is the same both ways. `rtt_s` is the round trip; each direction gets half of it."""
    profile = LinkProfile(
        rate_bit_s=rate_bit_s, delay_s=rtt_s / 2, jitter_s=jitter_s, loss_ratio=loss_ratio, source=source
    )
    return Link(name=name, a=a, b=b, wan=wan, forward=profile, backward=profile)
