"""A network as plain data: regions, nodes, WAN links between regions, access links of nodes to their region.

Each direction of a link has its own profile. A user writes a round-trip time; `symmetric` halves it once, here, so
that no other place can double it. Every profile says where its numbers come from, or "assumed".
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.link_profile import MTU_BYTES, LinkProfile
from testbed.core.spec.typed import made
from testbed.core.user_files.text import shown, some

MAX_WORKERS = 4096
"""Largest number of workers of a topology, simulated ones among them."""


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
        if len(mtus := {p.mtu_bytes for link in self.links for _, _, p in link.directions()}) > 1:
            yield f"topology {self.name}: links have MTUs of {', '.join(map(str, sorted(mtus)))}; give all the same"
        lost = known - self._reachable()
        if lost:
            yield f"topology {self.name}: no path to {some(sorted(lost))}; join them by a link"

    def _reachable(self) -> set[str]:
        neighbours: dict[str, list[str]] = {}
        for link in self.links:
            neighbours.setdefault(link.a, []).append(link.b)
            neighbours.setdefault(link.b, []).append(link.a)
        seen: set[str] = set()
        frontier = list(self.regions[:1])
        while frontier:
            here = frontier.pop()
            if here not in seen:
                seen.add(here)
                frontier += neighbours.get(here, ())
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
    def flow_cap_bit_s(self) -> float | None:
        """Most that one TCP connection of a worker carries, the same for all; None: whatever its links do."""
        return next((link.forward.flow_cap_bit_s for link in self.access_links), None)

    @property
    def mtu_bytes(self) -> int:
        """Largest IP packet of every link."""
        return next((link.forward.mtu_bytes for link in self.links), MTU_BYTES)

    @property
    def access_links(self) -> tuple[Link, ...]:
        return tuple(link for link in self.links if not link.wan)

    def dilated(self, k: float) -> Topology:
        """The same network k times slower, as it is built: rates divided by k, delays multiplied by it."""
        links = tuple(link.dilated(k) for link in self.links)
        return self if k == 1 else dataclasses.replace(self, links=links, dilation=self.dilation * k)

    def to_json(self) -> dict[str, Any]:
        """Return it as data, without what records had not before it could be asked for."""
        data = dataclasses.asdict(self)
        for profile in (link[way] for link in data["links"] for way in ("forward", "backward")):
            for field in ("burst_bytes", "flow_cap_bit_s"):
                if not profile[field]:
                    del profile[field]
            if profile["mtu_bytes"] == MTU_BYTES:
                del profile["mtu_bytes"]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Topology:
        """Raises `TypeError`, `KeyError` or `AttributeError` where a field is missing, or none of its kind."""
        links = tuple(
            made(Link, {**link, **{way: made(LinkProfile, link[way]) for way in ("forward", "backward")}})
            for link in data["links"]
        )
        fields = {
            "name": data["name"],
            "regions": tuple(data["regions"]),
            "nodes": tuple(made(Node, node) for node in data["nodes"]),
            "links": links,
            "dilation": data.get("dilation", 1.0),  # which the first specs did not have
        }
        return made(cls, fields)


def symmetric(name: str, a: str, b: str, *, wan: bool, rtt_s: float, **profile: Any) -> Link:
    """A link that is the same both ways. `rtt_s` is the round trip; each direction gets half of it.

    Args:
        profile: the other fields of `LinkProfile`.
    """
    both = LinkProfile(delay_s=rtt_s / 2, **profile)
    return Link(name=name, a=a, b=b, wan=wan, forward=both, backward=both)


# Which rank runs where: plain arithmetic, no processes.


def workers_per_region(workers: int, regions: int) -> tuple[int, ...]:
    """Spread `workers` over `regions` in blocks, the first regions one larger where it does not divide.

    >>> workers_per_region(5, 2)
    (3, 2)

    Raises:
        ValueError: a region would stay empty, or there are too many workers.
    """
    if workers > MAX_WORKERS:
        raise ValueError(f"workers={workers}: must be at most {MAX_WORKERS}; ask for fewer")
    if regions < 1 or workers < regions:
        raise ValueError(
            f"workers={workers}: {regions} regions need at least one worker each; ask for {regions} or more"
        )
    base, extra = divmod(workers, regions)
    return tuple(base + (1 if index < extra else 0) for index in range(regions))


# Networks whose WAN links are all alike: one rate and one round trip, which can be asked for anew.


def uniform_rtt_s(topology: Topology) -> float:
    """The round trip of every WAN link.

    Raises:
        InputError: there is no WAN link, or they are not all alike.
    """
    found = {(p.rate_bit_s, p.delay_s) for link in topology.wan_links for _, _, p in link.directions()}
    if not found:
        raise InputError(
            f"topo={topology.name}: it has no WAN link; use one of two_regions, star, ring, full_mesh, wan*"
        )
    if len(found) > 1:
        raise InputError(
            f"topo={topology.name}: its WAN links differ, so that no one rate and round trip tells of them; use one"
            " whose links are alike, such as two_regions, star, ring, full_mesh or wan*"
        )
    return topology.wan_links[0].rtt_s


def with_wan(topology: Topology, rate_bit_s: float, rtt_s: float) -> Topology:
    """The same network with this rate, each way, and this round trip of every WAN link.

    Raises:
        InputError: a number is out of range, or jitter is larger than what is left of the delay.
    """

    def changed(profile: LinkProfile) -> LinkProfile:
        return dataclasses.replace(profile, rate_bit_s=rate_bit_s, delay_s=rtt_s / 2)

    def of(link: Link) -> Link:
        if not link.wan:
            return link
        return dataclasses.replace(link, forward=changed(link.forward), backward=changed(link.backward))

    return dataclasses.replace(topology, links=tuple(map(of, topology.links)))


# The rule for names of regions, nodes and links, which become host names, labels of metrics and names in exports. None
# becomes a path: the rule has no dots and slashes, and files are numbered or named after nodes.

MAX_NAME, MAX_LINK_NAME = 40, 81
"""Characters; a link without a name is called after both of its regions."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_OUR_OWN: Mapping[str, str] = {
    "all": "this testbed's, for all links",
    "others": "this testbed's, for all other nodes",
    "localhost": "every machine's own",
}
CONTAINERLAB = ("host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy")
"""Names that are no nodes of a lab where a link of containerlab ends at them."""
_EXPORTS: Mapping[str, str] = {
    **dict.fromkeys(CONTAINERLAB, "containerlab's, for what is no node of a lab"),
    "c0": "Mininet's, for its controller",
}
_LINK_NODE = re.compile(r"wan[0-9]+")
"""Names that the middle of a WAN link has in a lab of containerlab."""


def name_fault(name: str, *, is_link: bool = False, is_ours: bool = False) -> str | None:
    """Return what is wrong with a name, or None.

    Args:
        is_link: True for the name of a link, which may be longer.
        is_ours: True for a name in a topology of this repository, which exports replace.
    """
    most = MAX_LINK_NAME if is_link else MAX_NAME
    if not name:
        return "the name '' is empty; give one of letters, digits and inner hyphens"
    if len(name) > most or not _NAME.fullmatch(name):
        return f"the name {shown(name)} must be letters, digits and inner hyphens, {most} at most; give another one"
    owner = _OUR_OWN.get(name.lower()) or (None if is_ours else _EXPORTS.get(name.lower()))
    if not is_link and _LINK_NODE.fullmatch(name.lower()):
        owner = "the export's to containerlab, for the middle of a WAN link"
    return f"the name {shown(name)} is reserved: it is {owner}; give another one" if owner else None
