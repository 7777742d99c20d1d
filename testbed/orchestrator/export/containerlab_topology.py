"""A topology as a lab of containerlab (https://containerlab.dev): `longhaul topologies NAME --containerlab FILE`.

Regions become routers, WAN links get a node of their own in the middle, as in our own runs: routers and nodes limit
the rate of what they send by tbf, the middle delays and loses by netem. Addresses, routes, bursts and queues are those
of our runs too. All is set by `exec` entries, with `ip`, `tc` and `sysctl` of the image, once the lab is there; nodes
have no management network, so that nothing can go around a link.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import CONTAINERLAB, Link, Topology
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.emulation.links.addresses import AddressPlan, Pair
from testbed.orchestrator.emulation.shapers.netem_options import ORDERING_RATE_BYTE_S
from testbed.orchestrator.emulation.shapers.shaper import limit_packets
from testbed.orchestrator.machine.ownership import give_to_caller

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")


@dataclass
class _LabNode:
    """Its commands, in order, and how many interfaces it has by now."""

    name: str
    forwards: bool
    """Packets of others pass through it."""
    mtu_bytes: int
    """MTU as in a run of Longhaul; links of containerlab have 9500 by default."""
    commands: list[str] = field(default_factory=list)
    interfaces: int = 0

    def __post_init__(self) -> None:
        if self.forwards:
            self.commands += ["sysctl -w net.ipv4.ip_forward=1", "sysctl -w net.ipv4.conf.all.rp_filter=0"]

    def add_interface(self, address: IPv4Address) -> str:
        """eth0 would be that of the management network."""
        self.interfaces += 1
        name = f"eth{self.interfaces}"
        self.commands += [
            f"ip link set dev {name} mtu {self.mtu_bytes} up",
            f"ip address add {address}/31 dev {name}",
        ]
        if self.forwards:
            # paths there and back may differ, which the reverse path filter takes for forgery; it goes by the stricter
            # of an interface's setting and that of all, and hosts may have begun the interface with a strict one
            self.commands.append(f"sysctl -w net.ipv4.conf.{name}.rp_filter=0")
        return name


def write(path: Path, topology: Topology, image: str) -> None:
    """
    Raises:
        InputError: as of `lab`, or the file cannot be written.
    """
    text = yaml.safe_dump(lab(topology, image), sort_keys=False, width=1000)
    sources = dict.fromkeys(profile.source for link in topology.links for _, _, profile in link.directions())
    head = [f"{topology.name}, of `longhaul topologies`; deploy: containerlab deploy -t {path.name}"]
    head += [f"source of its numbers: {source}" for source in sources]
    try:
        path.write_text("".join(f"# {' '.join(line.split())}\n" for line in head) + text)
    except OSError as error:
        raise InputError(f"--containerlab {path}: cannot be written: {error.strerror}") from error
    give_to_caller(path)


def lab(topology: Topology, image: str) -> dict[str, Any]:
    """The content of the file.

    Args:
        image: of all nodes; has `ip`, `tc`, `sysctl` and `sleep`.

    Raises:
        InputError: names that containers cannot have, or more regions or links than there are addresses for.
    """
    raise_input_faults(_faults(topology, image))
    return _Lab(topology).content(image)


def _faults(topology: Topology, image: str) -> Iterator[str]:
    if not re.fullmatch(r"\S+", image):
        yield f"--image {image!r}: name one that has ip, tc and sysctl, such as a Debian with iproute2 and procps"
    names = [*topology.regions, *(node.name for node in topology.nodes)]
    for name in [topology.name, *names]:
        if not NAME.fullmatch(name):
            yield f"topology {topology.name}: {name!r} is no name of a container: give letters, digits, hyphens"
    for name in sorted(set(names) & {_link_node(index) for index in range(len(topology.wan_links))}):
        yield f"topology {topology.name}: {name!r} is the name of a WAN link's middle; give it another one"


def _link_node(index: int) -> str:
    return f"wan{index}"


def _free(name: str, taken: Collection[str]) -> str:
    """Return a name like `name` that nothing has, since containerlab takes `name` for something else."""
    return next(label for index in itertools.count() if (label := f"{name}-{'x' * index}region") not in taken)


class _Lab:
    """Collects nodes and links."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._plan = AddressPlan(topology)
        link_nodes = [_link_node(index) for index in range(len(topology.wan_links))]
        forwarding = [*topology.regions, *link_nodes]
        self._nodes = {name: _LabNode(name, True, topology.mtu_bytes) for name in forwarding}
        self._nodes |= {node.name: _LabNode(node.name, False, topology.mtu_bytes) for node in topology.nodes}
        taken = [*self._nodes, *CONTAINERLAB]
        self._labels = {name: _free(name, taken) if name in CONTAINERLAB else name for name in self._nodes}
        self._link_nodes = {link.name: name for link, name in zip(topology.wan_links, link_nodes, strict=True)}
        self._links: list[dict[str, list[str]]] = []
        for link in topology.links:
            (self._add_wan_link if link.wan else self._add_access_link)(link)
        self._add_routes()

    def content(self, image: str) -> dict[str, Any]:
        common = {"kind": "linux", "image": image, "network-mode": "none", "cmd": "sleep infinity"}
        nodes = {self._labels[name]: {**common, "exec": node.commands} for name, node in self._nodes.items()}
        return {"name": self._topology.name, "topology": {"nodes": nodes, "links": self._links}}

    def _wire(self, a: str, b: str, pair: Pair) -> tuple[str, str]:
        """`pair.near` is a's address. Returns the interfaces."""
        interfaces = self._nodes[a].add_interface(pair.near), self._nodes[b].add_interface(pair.far)
        ends = zip((a, b), interfaces, strict=True)
        self._links.append({"endpoints": [f"{self._labels[name]}:{interface}" for name, interface in ends]})
        return interfaces

    def _add_wan_link(self, link: Link) -> None:
        link_node, addresses = self._link_nodes[link.name], self._plan.wan[link.name]
        at_a, from_a = self._wire(link.a, link_node, addresses.a_side)
        at_b, from_b = self._wire(link.b, link_node, addresses.b_side)
        for source, interface, leaves_on, profile in (
            (link.a, at_a, from_b, link.forward),
            (link.b, at_b, from_a, link.backward),
        ):
            self._nodes[source].commands.append(tbf(interface, profile, link.rtt_s))
            self._nodes[link_node].commands.append(netem(leaves_on, profile))

    def _add_access_link(self, link: Link) -> None:
        node, region = (link.a, link.b) if link.a in self._plan.access else (link.b, link.a)
        at_region, at_node = self._wire(region, node, self._plan.access[node])
        for source, _, profile in link.directions():
            least = tc.card_queue_bytes(profile) if source == node else 0
            end, interface = (node, at_node) if source == node else (region, at_region)
            self._nodes[end].commands.append(tbf(interface, profile, link.rtt_s, least))

    def _add_routes(self) -> None:
        for region in self._topology.regions:
            for other, link in self._plan.next_links(region).items():
                self._route(region, str(self._plan.region_network[other]), self._side(link, region).far)
        for link in self._topology.wan_links:
            from_a = self._plan.next_links(link.a)
            for region, network in self._plan.region_network.items():
                towards_b = region != link.a and (region == link.b or from_a.get(region) == link)
                self._route(
                    self._link_nodes[link.name], str(network), self._side(link, link.b if towards_b else link.a).near
                )
        for node in self._topology.nodes:
            self._route(node.name, "default", self._plan.access[node.name].near)

    def _side(self, link: Link, region: str) -> Pair:
        addresses = self._plan.wan[link.name]
        return addresses.a_side if region == link.a else addresses.b_side

    def _route(self, name: str, network: str, via: IPv4Address) -> None:
        self._nodes[name].commands.append(f"ip route add {network} via {via}")


def tbf(interface: str, profile: LinkProfile, rtt_s: float, least_queue_bytes: int = 0) -> str:
    """The rate of a direction, at the interface that sends it; tc's `bit` is a bit a second, its `b` a byte."""
    asked = tc.rate_settings(profile, rtt_s, least_queue_bytes=least_queue_bytes)
    rate = f"rate {round(asked.rate_bit_s)}bit burst {asked.burst_bytes}b limit {asked.limit_bytes}b"
    return f"tc qdisc add dev {interface} root tbf {rate}"


def netem(interface: str, profile: LinkProfile) -> str:
    """Delay, losses and the like of a direction, at the interface on which it leaves the middle."""
    words = [f"tc qdisc add dev {interface} root netem limit {limit_packets(profile)}"]
    words.append(f"delay {_us(profile.delay_s)}")
    if profile.jitter_s:
        words.append(_us(profile.jitter_s))
        if profile.jitter_distribution != "uniform":
            words.append(f"distribution {profile.jitter_distribution}")
    if chain := profile.gilbert_elliott:
        shares = (chain.enter_bad_ratio, chain.leave_bad_ratio, chain.bad_loss_ratio, chain.good_loss_ratio)
        words.append(f"loss gemodel {' '.join(map(_percent, shares))}")
    elif profile.loss_ratio:
        words.append(f"loss {_percent(profile.loss_ratio)}")
    if profile.duplicate_ratio:
        words.append(f"duplicate {_percent(profile.duplicate_ratio)}")
    if profile.reorder_ratio:
        words.append(f"reorder {_percent(profile.reorder_ratio)} gap 1")
    if profile.jitter_s:  # without a rate a late packet is overtaken by the next one
        words.append(f"rate {8 * ORDERING_RATE_BYTE_S}bit")
    return " ".join(words)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3f}us"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.6f}%"
