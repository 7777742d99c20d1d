"""A topology as running devices: Mininet nodes and links, addresses, routes, rates and delays, each read back.

A WAN link is a hop of its own: router of a - middle node - router of b. The rate of a direction is a tbf on its first
router, towards the middle; the delay is the shaper's, on the middle node. So rate and delay never share an interface,
and neither sits on a worker's. An access link's rate sits at both its ends, the worker's own card being one
(docs/decisions/0005).

Everything here is in wall-clock terms: under dilation k the topology given is `Topology.dilated(k)`.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping
from typing import Any

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Topology
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.emulation.kernel.awake_cores import AwakeCores
from testbed.orchestrator.emulation.kernel.namespaces import Namespace
from testbed.orchestrator.emulation.kernel.queue_counters import QueueReader
from testbed.orchestrator.emulation.kernel.tcp import ROUTER_SYSCTLS, RTO_MIN_US, TcpProfile
from testbed.orchestrator.emulation.links.addresses import AddressPlan
from testbed.orchestrator.emulation.links.mininet_classes import empty_mininet
from testbed.orchestrator.emulation.links.node import NamespaceNode, Router, WorkerNode, set_sysctls
from testbed.orchestrator.emulation.links.port import Port
from testbed.orchestrator.emulation.links.wires import WireBatch
from testbed.orchestrator.emulation.shapers import SHAPERS
from testbed.orchestrator.emulation.shapers.shaper import Hop, Report, limit_packets

WORKER_INTERFACE = "eth0"


class Network:
    """The devices of one run. A context manager; must be used inside the run's own network namespace.

    Args:
        shaper: "nfqueue" or "netem".
        report: takes the shaper's events.
        seed: Start of the random numbers for losses and jitter.
        namespaces: of workers that have one already, by node.
    """

    def __init__(
        self,
        topology: Topology,
        tcp: TcpProfile,
        shaper: str,
        report: Report,
        seed: int = 0,
        namespaces: Mapping[str, Namespace] | None = None,
    ) -> None:
        self.topology = topology
        self.tcp = tcp
        self.seed = seed
        self.plan = AddressPlan(topology)
        self.routers: dict[str, NamespaceNode] = {}
        self.link_nodes: dict[str, NamespaceNode] = {}
        self.workers: dict[str, NamespaceNode] = {}
        self.ports: list[Port] = []
        self.sysctls: dict[str, dict[str, str]] = {}
        self._report = report
        self._namespaces = namespaces or {}
        self._shaper_class = SHAPERS[shaper]
        self.cores = AwakeCores()
        self.mininet = empty_mininet()
        self._wire_batch = WireBatch(self.mininet, tcp.route_rto_min_s, topology.mtu_bytes)

    def __enter__(self) -> Network:
        self.cores.__enter__()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def nodes(self) -> dict[str, NamespaceNode]:
        """All, by region, WAN link or worker."""
        return {**self.routers, **self.link_nodes, **self.workers}

    @functools.cached_property
    def shaper(self) -> Any:
        return self._shaper_class([self._hop(port) for port in self.ports if port.link.wan], self._report)

    @functools.cached_property
    def queues(self) -> dict[str, QueueReader]:
        """Readers of the nodes that limit rates, by the Mininet node's name."""
        nodes = {port.node.name: port.node for port in self.ports}
        return {name: QueueReader(node.route_socket) for name, node in nodes.items()}

    def close(self) -> None:
        if "shaper" in self.__dict__:
            self.shaper.clear()
        for node in self.nodes.values():
            node.terminate()
        self.cores.__exit__()

    def _build(self) -> None:
        for index, region in enumerate(self.topology.regions):
            self.routers[region] = self.mininet.addHost(f"r{index}", cls=Router)
        for index, link in enumerate(self.topology.wan_links):
            self.link_nodes[link.name] = self.mininet.addHost(f"m{index}", cls=Router)
        for index, node in enumerate(self.topology.nodes):
            self.workers[node.name] = self.mininet.addHost(
                f"w{index}", cls=WorkerNode, namespace=self._namespaces.get(node.name)
            )
        self._set_sysctls()
        for link in self.topology.links:
            if link.wan:
                self._add_wan_link(link)
            else:
                self._add_access_link(link)
        self._add_routes()
        for port in self.ports:
            self._wire_batch.limit_rate(port.node, port.interface, port.settings)
        self._wire_batch.make()
        for port in self.ports:
            port.queues = self.queues[port.node.name]
            port.verify()
        self.shaper.apply()
        self._read_delays()

    def _set_sysctls(self) -> None:
        for name, node in self.nodes.items():
            values = self.tcp.sysctls()
            if name not in self.workers:
                values = {**values, **ROUTER_SYSCTLS}
            self.sysctls[name] = set_sysctls(node, values)

    def _add_wan_link(self, link: Link) -> None:
        link_node, addresses = self.link_nodes[link.name], self.plan.wan[link.name]
        for end, pair, inside in ((link.a, addresses.a_side, "to-a"), (link.b, addresses.b_side, "to-b")):
            self._wire_batch.wire(self.routers[end], link_node.name, pair.near, link_node, inside, pair.far)
        for source, target, profile in link.directions():
            self._add_port(link, source, target, self.routers[source], link_node.name, profile)

    def _add_access_link(self, link: Link) -> None:
        node, region = (link.a, link.b) if link.a in self.workers else (link.b, link.a)
        worker, router, pair = self.workers[node], self.routers[region], self.plan.access[node]
        self._wire_batch.wire(router, worker.name, pair.near, worker, WORKER_INTERFACE, pair.far)
        for source, target, profile in link.directions():
            if source == node:
                self._add_port(link, source, target, worker, WORKER_INTERFACE, profile, tc.card_queue_bytes(profile))
            else:
                self._add_port(link, source, target, router, worker.name, profile)

    def _add_port(
        self,
        link: Link,
        source: str,
        target: str,
        node: NamespaceNode,
        interface: str,
        profile: LinkProfile,
        least_queue_bytes: int = 0,
    ) -> None:
        settings = tc.rate_settings(profile, link.rtt_s, self.topology.dilation, least_queue_bytes)
        index = self._wire_batch.index(node, interface)
        k = self.topology.dilation
        self.ports.append(Port(link, source, target, node, interface, index, profile, settings, dilation=k))

    def _add_routes(self) -> None:
        for region, router in self.routers.items():
            for other, link in self.plan.next_links(region).items():
                addresses = self.plan.wan[link.name]
                via = addresses.a_side.far if region == link.a else addresses.b_side.far
                self._wire_batch.route(router, str(self.plan.region_network[other]), via)
        for link in self.topology.wan_links:
            a_side, b_side = self.plan.wan[link.name].a_side, self.plan.wan[link.name].b_side
            for end, near, far in ((link.a, a_side, b_side), (link.b, b_side, a_side)):
                self._wire_batch.route(self.routers[end], f"{far.near}/32", near.far)
            self._route_link_node(link)
        for name, worker in self.workers.items():
            self._wire_batch.route(worker, "default", self.plan.access[name].near, self.tcp.kernel_name)

    def _route_link_node(self, link: Link) -> None:
        """The middle passes what comes from one side to the other: regions reached through each end go to that end."""
        addresses = self.plan.wan[link.name]
        from_a = self.plan.next_links(link.a)
        for region, network in self.plan.region_network.items():
            towards_b = region != link.a and (region == link.b or from_a.get(region) == link)
            side = addresses.b_side if towards_b else addresses.a_side
            self._wire_batch.route(self.link_nodes[link.name], str(network), side.near)

    def _hop(self, port: Port) -> Hop:
        link = port.link
        arrives_on, leaves_on = ("to-a", "to-b") if port.source == link.a else ("to-b", "to-a")
        return Hop(
            link=link.name,
            source=port.source,
            target=port.target,
            namespace=self.link_nodes[link.name].namespace,
            arrives_on=arrives_on,
            leaves_on=leaves_on,
            near=self.plan.region_network[port.source] if port.source in self.plan.worker_regions else None,
            profile=port.profile,
            limit_packets=limit_packets(port.profile),
            seed=zlib.crc32(f"{self.seed}/{link.name}/{port.source}".encode()),
            dilation=port.dilation,
        )

    def _read_delays(self) -> None:
        found = self.shaper.read_back()
        for port in self.ports:
            port.delay = found.get((port.link.name, port.source))

    def port(self, link: str, source: str) -> Port:
        """Return the port of one direction."""
        (found,) = (port for port in self.ports if (port.link.name, port.source) == (link, source))
        return found

    def change(self, link: str, source: str, profile: LinkProfile) -> None:
        """Give a direction of a WAN link another profile, at once; read back.

        Raises:
            RunError: what is in force then is not what was asked.
        """
        port = self.port(link, source)
        (back,) = (other for other in self.ports if other.link.name == link and other.source != source)
        before = port.profile
        rtt_s = profile.delay_s + back.profile.delay_s
        port.change(profile, tc.rate_settings(profile, rtt_s, self.topology.dilation))
        if profile.delay_s != before.delay_s:  # a queue of one bandwidth-delay product follows the round trip
            back.change(back.profile, tc.rate_settings(back.profile, rtt_s, self.topology.dilation))
        if profile != before:
            self.shaper.change((link, source), profile, limit_packets(profile))
            self._read_delays()

    def retime(self, topology: Topology, tcp: TcpProfile) -> None:
        """Give every link and namespace the terms of another dilation, at once, and read them back.

        Packets that a link holds keep their time.

        Args:
            topology: The same one, dilated otherwise.
            tcp: The same profile, of that dilation.

        Raises:
            RunError: what is in force then is not what was asked.
        """
        before, self.topology, self.tcp = self.tcp, topology, tcp
        self._set_sysctls()
        if (rto_min_s := tcp.route_rto_min_s or (before.route_rto_min_s and RTO_MIN_US / 1e6)) is not None:
            self._wire_batch.retime(rto_min_s)
        links = {link.name: link for link in topology.links}
        for port in self.ports:
            link = links[port.link.name]
            (profile,) = (one for source, _, one in link.directions() if source == port.source)
            least_queue_bytes = tc.card_queue_bytes(profile) if port.source in self.workers else 0
            settings = tc.rate_settings(profile, link.rtt_s, topology.dilation, least_queue_bytes)
            port.link, port.dilation = link, topology.dilation
            port.change(profile, settings)
        self.shaper.retime([self._hop(port) for port in self.ports if port.link.wan])
        self._read_delays()

    def set_down(self, link: str, down: bool) -> None:
        """A link that is down loses every packet, both ways."""
        for port in self.ports:
            if port.link.name == link:
                self.shaper.set_down((link, port.source), down)
