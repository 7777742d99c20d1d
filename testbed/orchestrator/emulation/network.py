"""A topology as running devices: Mininet nodes and links, addresses, routes, rates and delays, each read back.

A WAN link is a hop of its own: router of a - middle node - router of b. The rate of a direction is a tbf on its first
router, towards the middle; the delay is the shaper's, on the middle node. So rate and delay never share an interface,
and neither sits on a worker's. An access link's rate sits at both its ends, the worker's own card being one
(docs/decisions/0005).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from mininet.link import Link as MininetLink
from mininet.net import Mininet
from mininet.node import Node

from testbed.core.errors import RunError
from testbed.core.topology import Link, LinkProfile, Topology
from testbed.orchestrator.emulation import tc
from testbed.orchestrator.emulation.addressing import AddressPlan
from testbed.orchestrator.emulation.node import Router, WorkerNode, run_in, set_sysctls
from testbed.orchestrator.emulation.shapers.base import DelayShaper, Direction, Report
from testbed.orchestrator.emulation.shapers.nfqueue import NfqueueShaper
from testbed.orchestrator.emulation.tcp import ROUTER_SYSCTLS, TcpProfile

WORKER_INTERFACE = "eth0"
_LEAST_LIMIT_PACKETS = 20_000
_LEAST_FRAME_BYTES = 1500


@dataclass
class Port:
    """Where one direction of a link is limited: an interface, its rate as asked and as the kernel reports it."""

    link: Link
    source: str
    target: str
    node: Node
    interface: str
    profile: LinkProfile
    settings: tc.RateSettings
    found: tc.RateSettings | None = None
    delay: dict[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.link.name, self.source, self.target

    def to_json(self) -> dict[str, Any]:
        """The link's entry of `network.json`, before anything is measured."""
        found = self.found
        return {
            "name": self.link.name,
            "from": self.source,
            "to": self.target,
            "wan": self.link.wan,
            "asked": {
                "rate_bit_s": self.profile.rate_bit_s,
                "delay_s": self.profile.delay_s,
                "jitter_s": self.profile.jitter_s,
                "rtt_s": self.link.rtt_s,
                "loss_ratio": self.profile.loss_ratio,
                "burst_bytes": self.settings.burst_bytes,
                "limit_bytes": self.settings.limit_bytes,
                "unit": self.settings.unit,
                "source": self.profile.source,
            },
            "read_back": {
                "rate_bit_s": found.rate_bit_s if found else None,
                "burst_bytes": found.burst_bytes if found else None,
                "limit_bytes": found.limit_bytes if found else None,
                **(self.delay or {}),
            },
            "measured": {"rate_bit_s": None, "rtt_s": None, "loss_ratio": None},
            "measurements": [],
        }


class Network:
    """The devices of one run. A context manager; must be used inside the run's own network namespace."""

    def __init__(self, topology: Topology, tcp: TcpProfile, report: Report, seed: int = 0) -> None:
        self.topology = topology
        self.tcp = tcp
        self.report = report
        self.seed = seed
        self.plan = AddressPlan(topology)
        self.routers: dict[str, Node] = {}
        self.middles: dict[str, Node] = {}
        self.workers: dict[str, WorkerNode] = {}
        self.ports: list[Port] = []
        self.shapers: dict[str, DelayShaper] = {}
        self.sysctls: dict[str, dict[str, str]] = {}
        Mininet.inited = True  # its own set-up raises limits and sysctls of the host
        self._mininet = Mininet(topo=None, controller=None, build=False)

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for shaper in self.shapers.values():
            shaper.clear()
        for node in [*self.workers.values(), *self.middles.values(), *self.routers.values()]:
            node.terminate()

    def _build(self) -> None:
        for index, region in enumerate(self.topology.regions):
            self.routers[region] = self._mininet.addHost(f"r{index}", cls=Router)
        for index, link in enumerate(self.topology.wan_links):
            self.middles[link.name] = self._mininet.addHost(f"m{index}", cls=Router)
        for index, node in enumerate(self.topology.nodes):
            self.workers[node.name] = self._mininet.addHost(f"w{index}", cls=WorkerNode)
        self._set_sysctls()
        for link in self.topology.links:
            if link.wan:
                self._add_wan_link(link)
            else:
                self._add_access_link(link)
        self._add_routes()
        for port in self.ports:
            self._limit_rate(port)
        for link in self.topology.wan_links:
            self._delay(link)

    def _set_sysctls(self) -> None:
        for name, node in [*self.routers.items(), *self.middles.items(), *self.workers.items()]:
            values = self.tcp.sysctls()
            if name not in self.workers:
                values = {**values, **ROUTER_SYSCTLS}
            self.sysctls[name] = set_sysctls(node, values)

    def _wire(self, a: Node, b: Node, a_interface: str, b_interface: str, a_address: str, b_address: str) -> None:
        """A veth pair with addresses and fixed neighbours (a first packet must not pay for ARP)."""
        MininetLink(a, b, intfName1=a_interface, intfName2=b_interface, fast=True)
        macs = [
            json.loads(run_in(n, ["ip", "-j", "link", "show", i]))[0]["address"]
            for n, i in ((a, a_interface), (b, b_interface))
        ]
        for node, interface, own, other, mac in (
            (a, a_interface, a_address, b_address, macs[1]),
            (b, b_interface, b_address, a_address, macs[0]),
        ):
            lines = (
                f"addr add {own}/31 dev {interface}",
                f"link set dev {interface} up",
                "link set dev lo up",
                f"neigh replace {other} lladdr {mac} dev {interface} nud permanent",
            )
            run_in(node, ["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")

    def _add_wan_link(self, link: Link) -> None:
        middle, addresses = self.middles[link.name], self.plan.wan[link.name]
        for end, pair, inside in ((link.a, addresses.a_side, "to-a"), (link.b, addresses.b_side, "to-b")):
            self._wire(self.routers[end], middle, middle.name, inside, str(pair.near), str(pair.far))
        for source, target, profile in link.directions():
            settings = tc.rate_settings(profile, link.rtt_s)
            self.ports.append(Port(link, source, target, self.routers[source], middle.name, profile, settings))

    def _add_access_link(self, link: Link) -> None:
        node, region = (link.a, link.b) if link.a in self.workers else (link.b, link.a)
        worker, router, pair = self.workers[node], self.routers[region], self.plan.access[node]
        self._wire(router, worker, worker.name, WORKER_INTERFACE, str(pair.near), str(pair.far))
        for source, target, profile in link.directions():
            end, interface = (worker, WORKER_INTERFACE) if source == node else (router, worker.name)
            self.ports.append(
                Port(link, source, target, end, interface, profile, tc.rate_settings(profile, link.rtt_s))
            )

    def _add_routes(self) -> None:
        networks = self.plan.region_network
        for region, router in self.routers.items():
            lines = []
            for other, link in self.plan.next_links(region).items():
                addresses = self.plan.wan[link.name]
                via = addresses.a_side.far if region == link.a else addresses.b_side.far
                lines.append(f"route add {networks[other]} via {via}")
            for link in self.topology.wan_links:
                addresses = self.plan.wan[link.name]
                for end, near, far in (
                    (link.a, addresses.a_side, addresses.b_side),
                    (link.b, addresses.b_side, addresses.a_side),
                ):
                    if end == region:
                        lines.append(f"route add {far.near}/32 via {near.far}")
            if lines:
                run_in(router, ["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
        for link in self.topology.wan_links:
            self._route_middle(link)
        for name, worker in self.workers.items():
            gateway = self.plan.access[name].near
            # the attribute works for every congestion control; the sysctl only for those the host allows to all
            run_in(worker, f"ip route add default via {gateway} congctl {self.tcp.congestion_control}".split())

    def _route_middle(self, link: Link) -> None:
        """The middle passes what comes from one side to the other: regions reached through each end go to that end."""
        addresses = self.plan.wan[link.name]
        lines = []
        from_a = self.plan.next_links(link.a)
        for region, network in self.plan.region_network.items():
            towards_b = region != link.a and (region == link.b or from_a.get(region) == link)
            side = addresses.b_side if towards_b else addresses.a_side
            lines.append(f"route add {network} via {side.near}")
        run_in(self.middles[link.name], ["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")

    def _limit_rate(self, port: Port) -> None:
        run_in(port.node, tc.tbf_command(port.interface, port.settings))
        qdiscs = json.loads(run_in(port.node, ["tc", "-j", "qdisc", "show", "dev", port.interface]))
        port.found = tc.parse_tbf([{"dev": port.interface, **qdisc} for qdisc in qdiscs], port.interface)
        wrong = tc.disagreement(port.settings, port.found)
        if wrong:
            raise RunError(
                f"link {port.link.name} from {port.source} to {port.target}:"
                f" asked {port.settings.rate_bit_s:.0f} bit/s, {wrong} after it was applied"
            )

    def _delay(self, link: Link) -> None:
        directions = []
        for index, (inside, (source, target, profile)) in enumerate(
            zip(("to-a", "to-b"), link.directions(), strict=True)
        ):
            in_flight = profile.rate_bit_s / 8 * (profile.delay_s + profile.jitter_s) / _LEAST_FRAME_BYTES
            limit = max(math.ceil(4 * in_flight), _LEAST_LIMIT_PACKETS)
            seed = hash((self.seed, self.topology.links.index(link), index))
            directions.append(Direction(link.name, source, target, inside, profile, limit, seed))
        shaper = NfqueueShaper(self.middles[link.name], (directions[0], directions[1]), self.report)
        self.shapers[link.name] = shaper
        shaper.apply()
        for port in self.ports:
            for direction, found in zip(directions, shaper.read_back(), strict=True):
                if port.key == (direction.link, direction.source, direction.target):
                    port.delay = found
