"""A network as plain data: regions, nodes, WAN links between regions, access links of nodes to their region.

Each direction of a link has its own profile. A user writes a round-trip time; `symmetric` halves it once, here, so
that no other place can double it. Every profile says where its numbers come from, or "assumed".
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from testbed.core.errors import raise_input_faults

LEAST_RATE_BIT_S, MOST_RATE_BIT_S = 1e4, 3.2e10
"""tc takes bytes a second in 32 bits. What this machine carries is measured before a run."""
"""Below, one frame takes a second; above, no machine this was tried on carries it."""


JITTER_DISTRIBUTIONS = ("uniform", "normal", "pareto")


@dataclass(frozen=True)
class GilbertElliott:
    """A link that is in a good or a bad state and may change it with every packet.

    E. N. Gilbert, Capacity of a burst-noise channel, 1960; E. O. Elliott, Estimates of error rates for codes on
    burst-noise channels, 1963.
    """

    enter_bad_ratio: float
    """Chance per packet of going from good to bad."""
    leave_bad_ratio: float
    bad_loss_ratio: float
    """Loss in the bad state."""
    good_loss_ratio: float


@dataclass(frozen=True, kw_only=True)
class LinkProfile:
    """One direction of a link."""

    rate_bit_s: float
    """Capacity, shared by all flows, Ethernet header included."""
    delay_s: float = 0.0
    """One way."""
    jitter_s: float = 0.0
    """Spread around `delay_s`: half the width of a uniform distribution, the standard deviation of another one."""
    jitter_distribution: str = "uniform"
    """One of `JITTER_DISTRIBUTIONS`; packets keep their order, whatever it is."""
    loss_ratio: float = 0.0
    """Mean share of lost packets, 0 to below 1."""
    loss_burst_packets: float = 0.0
    """Mean length of a bad state (Gilbert-Elliott); 0: packets are lost independently of each other."""
    bad_loss_ratio: float = 1.0
    """Loss in the bad state; without bursts it has no meaning."""
    good_loss_ratio: float = 0.0
    """Loss in the good state; without bursts it has no meaning."""
    duplicate_ratio: float = 0.0
    """Share of packets that arrive twice."""
    reorder_ratio: float = 0.0
    """Share of packets that overtake all others: they are not delayed at all."""
    limit_bytes: int = 0
    """Queue in front of the rate limit; 0 means one bandwidth-delay product, at least four bursts."""
    flow_rate_bit_s: float | None = None
    """What a single TCP flow reached where the numbers were taken. It tells of the windows of those hosts, not of the
    link, so it limits nothing here; `tcp=stock` shows such windows."""
    source: str
    """Where the numbers come from, with a date, or "assumed: why"."""

    @property
    def gilbert_elliott(self) -> GilbertElliott | None:
        """The chain whose mean loss is `loss_ratio`; None where losses are independent."""
        if not self.loss_burst_packets or not self.loss_ratio:
            return None
        bad_share = (self.loss_ratio - self.good_loss_ratio) / (self.bad_loss_ratio - self.good_loss_ratio)
        leave = 1 / self.loss_burst_packets
        return GilbertElliott(leave * bad_share / (1 - bad_share), leave, self.bad_loss_ratio, self.good_loss_ratio)

    @property
    def loss_variance(self) -> float:
        """Of the number of lost packets, per packet; bursts make it larger than that of independent losses."""
        variance = self.loss_ratio * (1 - self.loss_ratio)
        if chain := self.gilbert_elliott:
            bad_share = (self.loss_ratio - chain.good_loss_ratio) / (chain.bad_loss_ratio - chain.good_loss_ratio)
            spread = (chain.bad_loss_ratio - chain.good_loss_ratio) ** 2 * bad_share * (1 - bad_share)
            memory = 1 - chain.enter_bad_ratio - chain.leave_bad_ratio
            variance += 2 * spread * memory / (1 - memory)
        return variance

    def dilated(self, k: float) -> LinkProfile:
        """The same direction k times slower; bytes in flight, queue and losses stay."""
        flow = self.flow_rate_bit_s
        return dataclasses.replace(
            self,
            rate_bit_s=self.rate_bit_s / k,
            delay_s=self.delay_s * k,
            jitter_s=self.jitter_s * k,
            flow_rate_bit_s=None if flow is None else flow / k,
        )

    def faults(self, where: str) -> Iterator[str]:
        if not LEAST_RATE_BIT_S <= self.rate_bit_s <= MOST_RATE_BIT_S:
            known = f"from {LEAST_RATE_BIT_S:g} to {MOST_RATE_BIT_S:g}"
            yield f"{where}: rate must be {known} bit/s, found {self.rate_bit_s:g}"
        if not (math.isfinite(self.delay_s) and 0 <= self.delay_s <= 5):
            yield f"{where}: one-way delay must be from 0 to 5 s, found {self.delay_s:g} s"
        if not 0 <= self.jitter_s <= max(self.delay_s, 0):
            yield f"{where}: jitter must be from 0 to the delay, found {self.jitter_s:g} s"
        if self.jitter_distribution not in JITTER_DISTRIBUTIONS:
            known = ", ".join(JITTER_DISTRIBUTIONS)
            yield f"{where}: jitter distribution {self.jitter_distribution!r} is unknown; known: {known}"
        for what in ("loss", "duplicate", "reorder"):
            ratio = getattr(self, f"{what}_ratio")
            if not 0 <= ratio < 1:
                yield f"{where}: {what} must be from 0 to below 1, found {ratio:g}"
        yield from self._burst_faults(where)
        if self.reorder_ratio and not self.delay_s:
            yield f"{where}: reordering needs a delay that the overtaking packets are spared"
        if self.limit_bytes < 0:
            yield f"{where}: queue limit must not be negative, found {self.limit_bytes}"
        if self.flow_rate_bit_s is not None and not self.flow_rate_bit_s > 0:
            yield f"{where}: the rate of a single flow must be above 0, found {self.flow_rate_bit_s:g}"
        if not self.source.strip():
            yield f"{where}: says no source for its numbers; write one, or 'assumed: why'"

    def _burst_faults(self, where: str) -> Iterator[str]:
        if not self.loss_burst_packets:
            return
        if not self.loss_burst_packets >= 1:
            yield f"{where}: loss bursts must be at least 1 packet long, found {self.loss_burst_packets:g}"
        if not 0 <= self.good_loss_ratio < self.bad_loss_ratio <= 1:
            found = f"found {self.good_loss_ratio:g} and {self.bad_loss_ratio:g}"
            yield f"{where}: loss in the good state must be below loss in the bad one, both from 0 to 1; {found}"
        elif self.loss_ratio and not self.good_loss_ratio <= self.loss_ratio < self.bad_loss_ratio:
            found = f"{self.good_loss_ratio:g} and {self.bad_loss_ratio:g}, found {self.loss_ratio:g}"
            yield f"{where}: mean loss must lie between those of the good and the bad state, {found}"
        elif (chain := self.gilbert_elliott) and chain.enter_bad_ratio > 1:
            found = f"{self.loss_burst_packets:g} packets at a mean loss of {self.loss_ratio:g}"
            yield f"{where}: loss bursts are too short for so much loss, found {found}"


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

    def dilated(self, k: float) -> Link:
        return dataclasses.replace(self, forward=self.forward.dilated(k), backward=self.backward.dilated(k))


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
    dilation: float = 1.0
    """How many times slower than what it stands for this network is; 1 for all that are asked for. See `dilated`."""

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

    @functools.cached_property
    def slowest_hop(self) -> tuple[float, float]:
        """(alpha_s, beta_s_byte) of the slowest links: what one message costs, and each of its bytes."""
        profiles = [profile for link in self.links for _, _, profile in link.directions()]
        if not profiles:
            return 0.0, 0.0
        return max(p.delay_s for p in profiles), 8 / min(p.rate_bit_s for p in profiles)

    def only(self, ranks: Collection[int]) -> Topology:
        """This network with the workers of `ranks` alone."""
        nodes = tuple(self.nodes[rank] for rank in ranks)
        gone = {node.name for node in self.nodes} - {node.name for node in nodes}
        links = tuple(link for link in self.links if not {link.a, link.b} & gone)
        return dataclasses.replace(self, nodes=nodes, links=links)

    @functools.cached_property
    def farthest_rtt_s(self) -> float:
        """Round trip between the two regions farthest apart: over their own link, or the path of least delay."""
        delays = {region: self._delays_from(region) for region in self.regions}
        for link in reversed(self.wan_links):
            for source, target, profile in link.directions():
                delays[source][target] = profile.delay_s
        return max((delays[a][b] + delays[b][a] for a in self.regions for b in self.regions), default=0.0)

    def _delays_from(self, start: str) -> dict[str, float]:
        """One-way delay to every region."""
        links: dict[str, list[tuple[str, float]]] = {region: [] for region in self.regions}
        for link in self.wan_links:
            for source, target, profile in link.directions():
                links[source].append((target, profile.delay_s))
        queue, delays = [(0.0, start)], dict[str, float]()
        while queue:
            delay_s, here = heapq.heappop(queue)
            if here in delays:
                continue
            delays[here] = delay_s
            for target, more_s in links[here]:
                heapq.heappush(queue, (delay_s + more_s, target))
        return delays

    @property
    def wan_links(self) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.wan)

    @property
    def access_links(self) -> tuple[Link, ...]:
        return tuple(link for link in self.links if not link.wan)

    def dilated(self, k: float) -> Topology:
        """The same network k times slower, as it is built: rates divided by k, delays multiplied by it."""
        links = tuple(link.dilated(k) for link in self.links)
        return self if k == 1 else dataclasses.replace(self, links=links, dilation=self.dilation * k)

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
            dilation=data.get("dilation", 1.0),  # which the first specs did not have
        )


def symmetric(name: str, a: str, b: str, *, wan: bool, rtt_s: float, **profile: Any) -> Link:
    """A link that is the same both ways. `rtt_s` is the round trip; each direction gets half of it.

    Args:
        profile: the other fields of `LinkProfile`.
    """
    both = LinkProfile(delay_s=rtt_s / 2, **profile)
    return Link(name=name, a=a, b=b, wan=wan, forward=both, backward=both)
