"""The kernel's counters of a namespace, read over netlink from outside: not one packet is sent."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from testbed.orchestrator.emulation.namespaces import in_network_namespace

_RTM_GETLINK, _RTM_GETQDISC = 18, 38
_REQUEST_DUMP = 0x301
_NLMSG_DONE = 3
_TC_H_ROOT = 0xFFFFFFFF


@dataclass(frozen=True)
class QueueCounters:
    """Of a root qdisc. `sent_bytes` counts the headers of every segment, also of those inside a super-packet."""

    sent_bytes: int
    packets: int
    drops: int
    backlog_bytes: int


class QueueReader:
    """Reads every root qdisc of the namespace of process `pid`.

    One plain socket opened there once, usable from any thread; the library's own socket objects open another for each
    thread, in that thread's namespace. Its message classes do the decoding.
    """

    def __init__(self, pid: int) -> None:
        self._socket = in_network_namespace(
            pid, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        )
        links = self._dump(_RTM_GETLINK, ifinfmsg, body_bytes=16)
        self._names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in links}

    def _dump(self, kind: int, form: Any, body_bytes: int) -> Iterator[Any]:
        self._socket.send(struct.pack("=IHHII", 16 + body_bytes, kind, _REQUEST_DUMP, 1, 0) + bytes(body_bytes))
        while True:
            data, offset = self._socket.recv(1 << 17), 0
            while offset < len(data):
                length, answer = struct.unpack_from("=IH", data, offset)
                if answer == _NLMSG_DONE:
                    return
                message = form(data[offset : offset + length])
                message.decode()
                yield message
                offset += (length + 3) & ~3

    @property
    def interfaces(self) -> list[str]:
        return list(self._names.values())

    def read(self) -> dict[str, QueueCounters]:
        """By interface name."""
        found = {}
        for message in self._dump(_RTM_GETQDISC, tcmsg, body_bytes=20):
            if message["parent"] != _TC_H_ROOT:
                continue
            stats = message.get_attr("TCA_STATS2")
            basic, queue = stats.get_attr("TCA_STATS_BASIC"), stats.get_attr("TCA_STATS_QUEUE")
            found[self._names[message["index"]]] = QueueCounters(
                sent_bytes=basic["bytes"],
                packets=basic["packets"],
                drops=queue["drops"],
                backlog_bytes=queue["backlog"],
            )
        return found

    def close(self) -> None:
        self._socket.close()
