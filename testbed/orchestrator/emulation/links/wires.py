"""Wires, addresses, routes and rates of many nodes at once: a few netlink messages instead of a process each.

The nodes and links stay Mininet's objects (`Mininet.links`, `Node.intfs`), so that what knows Mininet knows them.
"""

from __future__ import annotations

import functools
import struct
from collections import defaultdict
from ipaddress import IPv4Address

from testbed.core.errors import RunError
from testbed.core.spec.link_profile import MTU_BYTES
from testbed.orchestrator.emulation.kernel import netlink_requests, tc
from testbed.orchestrator.emulation.kernel.netlink import RouteSocket, attributes, mtu_bytes_of
from testbed.orchestrator.emulation.kernel.netlink_requests import RTAX_RTO_MIN
from testbed.orchestrator.emulation.links.mininet_classes import Intf, Mininet
from testbed.orchestrator.emulation.links.mininet_classes import Link as MininetLink
from testbed.orchestrator.emulation.links.node import NamespaceNode

# What the kernel says of the routes of a namespace, as it answers to rtnetlink.

_RTM_GETROUTE = 26
_HEADER_BYTES, _BODY = 16, struct.Struct("=BBBBBBBBI")
"""rtmsg: family, lengths, service; table, protocol, scope, type; flags."""
_PROTOCOL_STATIC = 4
_RTA_METRICS = 8
_RTAX_LOCK = 1


def least_time_outs_s(routes: RouteSocket) -> list[float | None]:
    """TCP's least retransmission time-out by each route that was added here; None where the kernel heeds none.

    It keeps milliseconds, and heeds only a locked one.
    """
    return [
        _least_time_out_s(message)
        for message in routes.dump(_RTM_GETROUTE, _BODY.size)
        if _BODY.unpack_from(message, _HEADER_BYTES)[5] == _PROTOCOL_STATIC
    ]


def _least_time_out_s(message: bytes) -> float | None:
    metrics = attributes(attributes(message[_HEADER_BYTES + _BODY.size :]).get(_RTA_METRICS, b""))
    locked = int.from_bytes(metrics.get(_RTAX_LOCK, b""), "little") >> RTAX_RTO_MIN & 1
    return int.from_bytes(metrics[RTAX_RTO_MIN], "little") / 1000 if locked and RTAX_RTO_MIN in metrics else None


def verify_least_time_out(routes: RouteSocket, asked_s: float, where: str) -> None:
    """Raises:
    RunError: some route that was added here has another one, or none that is heeded.
    """
    for found_s in least_time_outs_s(routes):
        if found_s != round(asked_s, 3):
            found = "none" if found_s is None else f"{found_s:g} s"
            raise RunError(f"{where}: asked a least time-out of {asked_s:g} s of each route, kernel reports {found}")


_FIRST_INDEX = 10
"""Above what a new namespace holds by itself (lo, tunnels' own)."""
_LOOPBACK_INDEX = 1


class Interface(Intf):  # type: ignore[misc]
    """One end of a wire; Mininet would set it up by `ifconfig`, a process each."""

    def config(self, *_: object, **__: object) -> dict[str, object]:
        """By `WireBatch.make`, with all others."""
        return {}


class Wire(MininetLink):  # type: ignore[misc]
    """A Mininet link whose devices are made elsewhere."""

    @classmethod
    def makeIntfPair(cls, *_: object, **__: object) -> None:
        """They come with all others, by `WireBatch.make`."""


def mac_address(address: IPv4Address) -> str:
    """Locally administered, and unique because the address is."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0, *address.packed))


class WireBatch:
    """Collects what is to be there, then makes it."""

    def __init__(self, mininet: Mininet, rto_min_s: float | None = None, mtu_bytes: int = MTU_BYTES) -> None:
        """
        Args:
            rto_min_s: of every route, where no sysctl says it.
            mtu_bytes: Largest IP packet of every device.
        """
        self._mininet, self._mtu_bytes = mininet, mtu_bytes
        self._rto_min_s = rto_min_s
        self._pairs: list[netlink_requests.Request] = []
        self._settings: dict[NamespaceNode, list[netlink_requests.Request]] = defaultdict(list)
        self._index: dict[tuple[NamespaceNode, str], int] = {}
        self._used: dict[NamespaceNode, int] = defaultdict(lambda: _FIRST_INDEX)
        self._routes: list[tuple[NamespaceNode, tuple[str, str, str | None]]] = []

    def index(self, node: NamespaceNode, interface: str) -> int:
        return self._index[node, interface]

    def wire(
        self,
        a: NamespaceNode,
        a_interface: str,
        a_address: IPv4Address,
        b: NamespaceNode,
        b_interface: str,
        b_address: IPv4Address,
    ) -> None:
        """A veth pair with /31 addresses and fixed neighbours (a first packet must not pay for ARP)."""
        ends = ((a, a_interface, a_address, b_address), (b, b_interface, b_address, a_address))
        for node, interface, _, _ in ends:
            self._index[node, interface] = self._used[node]
            self._used[node] += 1
        self._pairs.append(
            netlink_requests.veth(
                *(
                    netlink_requests.VethEnd(
                        interface,
                        self.index(node, interface),
                        mac_address(own),
                        node.namespace.descriptor,
                        self._mtu_bytes,
                    )
                    for node, interface, own, _ in ends
                )
            )
        )
        for node, interface, own, other in ends:
            index = self.index(node, interface)
            self._settings[node] += [
                netlink_requests.address(index, str(own)),
                netlink_requests.up(index),
                netlink_requests.neighbour(index, str(other), mac_address(other)),
            ]
        wire = Wire(a, b, intfName1=a_interface, intfName2=b_interface, intf=Interface, fast=True)
        self._mininet.links.append(wire)

    def route(self, node: NamespaceNode, network: str, via: IPv4Address, congestion_control: str | None = None) -> None:
        """The attribute works for every congestion control; the sysctl only for those that the host allows to all."""
        route = (network, str(via), congestion_control)
        self._routes.append((node, route))
        self._settings[node].append(netlink_requests.route(*route, self._rto_min_s))

    def retime(self, rto_min_s: float) -> None:
        """Give all routes another least retransmission time-out; read back."""
        for node, route in self._routes:
            request = netlink_requests.route(*route, rto_min_s, change=True)
            node.route_socket.send([request], f"node {node.name}")
        for node in dict(self._routes):
            verify_least_time_out(node.route_socket, rto_min_s, f"node {node.name}")

    def limit_rate(self, node: NamespaceNode, interface: str, settings: tc.RateSettings) -> None:
        self._settings[node].append(tc.tbf(self.index(node, interface), settings))

    def _verify_mtu(self) -> None:
        """Read back the largest packet of every device.

        Raises:
            RunError: The kernel has set another one.
        """
        for node in dict.fromkeys(node for node, _ in self._index):
            names = [interface for owner, interface in self._index if owner is node]
            found = node.namespace.call(functools.partial(lambda names: list(map(mtu_bytes_of, names)), names))
            for name, mtu_bytes in zip(names, found, strict=True):
                if mtu_bytes != self._mtu_bytes:
                    asked = f"asked for an MTU of {self._mtu_bytes}"
                    raise RunError(f"node {node.name}: {name}: {asked}, the kernel has {mtu_bytes}")

    def make(self) -> None:
        """Raises `RunError` with the request that the kernel refused, or with what it made of it."""
        socket = RouteSocket("/proc/self/ns/net")
        try:
            socket.send(self._pairs, "devices")
        finally:
            socket.close()
        if self._mtu_bytes != MTU_BYTES:
            self._verify_mtu()
        for node, settings in self._settings.items():
            node.route_socket.send([netlink_requests.up(_LOOPBACK_INDEX), *settings], f"node {node.name}")
            if self._rto_min_s is not None:
                verify_least_time_out(node.route_socket, self._rto_min_s, f"node {node.name}")
