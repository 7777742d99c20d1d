"""Requests to the kernel's router netlink, encoded by pyroute2's message classes; sent by `netlink.RouteSocket`.

The classes are used directly: the library's own batches run an event loop for each request, four times the cost.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPBatch
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

_RTM_NEWLINK, _RTM_NEWADDR, _RTM_NEWROUTE, _RTM_NEWNEIGH, _RTM_NEWQDISC = 16, 20, 24, 28, 36
_REQUEST, _REPLACE, _EXCLUSIVE, _CREATE = 0x1, 0x100, 0x200, 0x400
_NEW = _REQUEST | _EXCLUSIVE | _CREATE
_CHANGE = _REQUEST | _REPLACE | _CREATE
_IFF_UP = 1
_TC_H_ROOT = 0xFFFFFFFF
_TABLE_MAIN, _PROTOCOL_STATIC, _SCOPE_UNIVERSE, _TYPE_UNICAST = 254, 4, 0, 1
_NUD_PERMANENT = 0x80
RTAX_RTO_MIN = 13
TICK_S = 64e-9
"""The kernel's unit of scheduling time (PSCHED_SHIFT 6), in which it keeps bursts."""


@dataclass(frozen=True)
class Request:
    """One request, and what it is called in an error."""

    message: bytes
    said: str


def _request(form: type[Any], kind: int, flags: int, said: str, fields: dict[str, Any]) -> Request:
    message = form()
    message.update(fields)
    message["header"] = {"type": kind, "flags": flags, "sequence_number": 0, "pid": 0}
    message.encode()
    return Request(bytes(message.data), said)


@dataclass(frozen=True)
class VethEnd:
    """A device to be: its name, index, hardware address, the descriptor of its namespace, and its largest IP packet."""

    interface: str
    index: int
    mac: str
    namespace: int
    mtu_bytes: int

    def attributes(self) -> list[tuple[str, Any]]:
        return [
            ("IFLA_IFNAME", self.interface),
            ("IFLA_MTU", self.mtu_bytes),
            ("IFLA_NET_NS_FD", self.namespace),
            ("IFLA_ADDRESS", self.mac),
        ]


def veth(a: VethEnd, b: VethEnd) -> Request:
    """Both ends, each in its namespace at once."""
    peer = {"index": b.index, "attrs": b.attributes()}
    kind = {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", peer)]})]}
    attributes = [*a.attributes(), ("IFLA_LINKINFO", kind)]
    said = f"add veth {a.interface} peer {b.interface}"
    return _request(ifinfmsg, _RTM_NEWLINK, _NEW, said, {"index": a.index, "attrs": attributes})


def up(index: int) -> Request:
    fields = {"index": index, "flags": _IFF_UP, "change": _IFF_UP, "attrs": []}
    return _request(ifinfmsg, _RTM_NEWLINK, _REQUEST, f"set link {index} up", fields)


def address(index: int, own: str) -> Request:
    """Point to point: /31."""
    attributes = [("IFA_LOCAL", own), ("IFA_ADDRESS", own)]
    fields = {"family": socket.AF_INET, "prefixlen": 31, "index": index, "attrs": attributes}
    return _request(ifaddrmsg, _RTM_NEWADDR, _NEW, f"add address {own}/31 to link {index}", fields)


def neighbour(index: int, other: str, mac: str) -> Request:
    """Permanent."""
    fields = {
        "family": socket.AF_INET,
        "ifindex": index,
        "state": _NUD_PERMANENT,
        "attrs": [("NDA_DST", other), ("NDA_LLADDR", mac)],
    }
    return _request(ndmsg, _RTM_NEWNEIGH, _NEW, f"add neighbour {other} {mac} on link {index}", fields)


def route(
    network: str,
    via: str,
    congestion_control: str | None = None,
    rto_min_s: float | None = None,
    *,
    change: bool = False,
) -> Request:
    """`network` is "default" or address/length.

    Args:
        rto_min_s: TCP's least retransmission time-out over this route, in whole milliseconds; the kernel heeds it only
            where it is locked.
        change: True to replace the one that is there.
    """
    attributes: list[tuple[str, Any]] = [("RTA_GATEWAY", via)]
    length = 0
    if network != "default":
        target, _, text = network.partition("/")
        length = int(text)
        attributes.append(("RTA_DST", target))
    metrics: list[tuple[str, Any]] = []
    if rto_min_s is not None:
        metrics += [("RTAX_LOCK", 1 << RTAX_RTO_MIN), ("RTAX_RTO_MIN", round(rto_min_s * 1000))]
    if congestion_control:
        metrics.append(("RTAX_CC_ALGO", congestion_control))
    if metrics:
        attributes.append(("RTA_METRICS", {"attrs": metrics}))
    fields = {
        "family": socket.AF_INET,
        "dst_len": length,
        "table": _TABLE_MAIN,
        "proto": _PROTOCOL_STATIC,
        "scope": _SCOPE_UNIVERSE,
        "type": _TYPE_UNICAST,
        "attrs": attributes,
    }
    said = f"add route {network} via {via}" + (f" congctl {congestion_control}" if congestion_control else "")
    return _request(rtmsg, _RTM_NEWROUTE, _CHANGE if change else _NEW, said, fields)


PEAK_BYTE_S = 500_000_000
"""Of tbf's second bucket, which is there for its size alone."""


def tbf(
    index: int,
    *,
    rate_byte_s: int,
    burst_bytes: int,
    limit_bytes: int,
    most_frame_bytes: int | None = None,
    change: bool = False,
) -> Request:
    """As the interface's root queue; `change` alters the one that is there.

    With `most_frame_bytes` super-packets are cut into frames: tbf cuts what is larger than the smaller of its buckets,
    so a second one of that size, which fills at a rate no link here has, does the cutting and limits nothing.
    """
    parameters: dict[str, int] = {
        "rate": rate_byte_s,
        "buffer": round(burst_bytes / rate_byte_s / TICK_S),
        "limit": limit_bytes,
        "mtu": 0,
    }
    if most_frame_bytes is not None:
        parameters |= {"peak": PEAK_BYTE_S, "mtu": round(most_frame_bytes / PEAK_BYTE_S / TICK_S)}
    fields = {
        "family": socket.AF_UNSPEC,
        "index": index,
        "handle": 0,
        "parent": _TC_H_ROOT,
        "info": 0,
        "attrs": [("TCA_KIND", "tbf"), ("TCA_OPTIONS", {"attrs": [("TCA_TBF_PARMS", parameters)]})],
    }
    said = f"tbf on link {index}: rate {rate_byte_s} byte/s, burst {burst_bytes}, limit {limit_bytes}"
    return _request(tcmsg, _RTM_NEWQDISC, _REQUEST if change else _NEW, said, fields)


class Batch(list[Request]):
    """Requests of any kind that pyroute2's IPRoute knows, encoded by it: slower, for what is done rarely."""

    def add(self, what: str, verb: str, *words: str, **fields: Any) -> None:
        """`what` is a method of IPRoute: link, addr, neigh, route, tc."""
        encoder = IPBatch()
        getattr(encoder, what)(verb, *words, **fields)
        said = " ".join([what, verb, *words, *(f"{key} {value}" for key, value in fields.items())])
        self.append(Request(bytes(encoder.batch), said))
