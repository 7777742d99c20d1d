"""The kernel's counters of queues, read over netlink from outside: not one packet is sent.

Decoded by hand, since they are read many times a second of every namespace, and four numbers are wanted of each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.rtnl.tcmsg import tcmsg

from testbed.orchestrator.emulation.kernel.netlink import RouteSocket, attributes

_RTM_GETLINK, _RTM_GETQDISC = 18, 38
_LINK_BYTES, _QDISC_BYTES = 16, 20
_TC_H_ROOT = 0xFFFFFFFF
_HEADER_BYTES = 16
_IFLA_IFNAME = 3
_TCA_STATS2, _TCA_STATS_BASIC, _TCA_STATS_QUEUE = 7, 1, 3
_LINK = struct.Struct("=BBHiII")
"""Family, padding, type, interface index, flags, change."""
_QDISC = struct.Struct("=BBHiIII")
"""Family, padding, interface index, handle, parent, info."""


@dataclass(frozen=True)
class QueueCounters:
    """Of a root qdisc. `sent_bytes` counts the headers of every segment, also of those inside a super-packet."""

    sent_bytes: int
    packets: int
    drops: int
    backlog_bytes: int


class QueueReader:
    """Reads the root qdiscs of a namespace through its route socket."""

    def __init__(self, route_socket: RouteSocket) -> None:
        self._socket = route_socket
        self._names = self._dump_names()
        self._indices = {name: index for index, name in self._names.items()}

    def _dump_names(self) -> dict[int, str]:
        return dict(_index_and_name(data) for data in self._socket.dump(_RTM_GETLINK, _LINK_BYTES))

    def interfaces(self) -> list[str]:
        """Names of the interfaces that are there now; `read` knows those that were there in the beginning."""
        return list(self._dump_names().values())

    def read(self) -> dict[str, QueueCounters]:
        """Of every interface that was there in the beginning, by name."""
        return dict(self._roots(self._socket.dump(_RTM_GETQDISC, _QDISC_BYTES)))

    def read_one(self, interface: str) -> QueueCounters:
        """Of one interface: quick, however many there are."""
        return dict(self._roots([self._get(interface)]))[interface]

    def settings(self, interface: str) -> Any:
        """The root qdisc as pyroute2 decodes it."""
        return _decoded(tcmsg, self._get(interface))

    def _get(self, interface: str) -> bytes:
        body = _QDISC.pack(0, 0, 0, self._indices[interface], 0, _TC_H_ROOT, 0)
        return self._socket.get(_RTM_GETQDISC, body)

    def _roots(self, messages: list[bytes]) -> Iterator[tuple[str, QueueCounters]]:
        for data in messages:
            _, _, _, index, _, parent, _ = _QDISC.unpack_from(data, _HEADER_BYTES)
            if parent == _TC_H_ROOT and index in self._names:
                yield self._names[index], _counters(data)


def _index_and_name(data: bytes) -> tuple[int, str]:
    _, _, _, index, _, _ = _LINK.unpack_from(data, _HEADER_BYTES)
    return index, attributes(data[_HEADER_BYTES + _LINK_BYTES :])[_IFLA_IFNAME].rstrip(b"\0").decode()


def _decoded(form: Any, data: bytes) -> Any:
    message = form(data)
    message.decode()
    return message


def _counters(data: bytes) -> QueueCounters:
    stats = attributes(attributes(data[_HEADER_BYTES + _QDISC_BYTES :])[_TCA_STATS2])
    sent_bytes, packets = struct.unpack_from("=QI", stats[_TCA_STATS_BASIC])
    _, backlog_bytes, drops = struct.unpack_from("=III", stats[_TCA_STATS_QUEUE])
    return QueueCounters(sent_bytes, packets, drops, backlog_bytes)
