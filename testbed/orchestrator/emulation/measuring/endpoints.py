"""A link as its two ends, as the probe process sees it: sockets in the namespaces on either side."""

from __future__ import annotations

import functools
import select
import socket
import struct
import time
from typing import Any

from testbed.core.spec.link_profile import MTU_BYTES
from testbed.orchestrator.emulation.kernel.namespaces import in_network_namespace
from testbed.orchestrator.emulation.kernel.netlink import RouteSocket, mtu_bytes_of
from testbed.orchestrator.emulation.kernel.queue_counters import QueueCounters, QueueReader

PORT = 61_000
"""Of probes; bursts use the next."""
LATE_S = 2.0
"""A probe that has not arrived this long after the expected time is lost."""
_DRAINS_S = 0.1
"""What a burst leaves in a long queue is through after about so long."""
_MIN_BUFFER_BYTES = 8192
_SO_TIMESTAMPNS = 35
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_UDP_GRO = 104
_IP_UDP_BYTES = 28
_PROBE = struct.Struct("!Qd")
"""Its number and the time at which it was sent."""


@functools.cache
def _queues(namespace: str) -> QueueReader:
    """One for all ends in a namespace: a router may have a thousand."""
    return QueueReader(RouteSocket(namespace))


def _set_buffer(of: socket.socket, forced: int, plain: int, size_bytes: int) -> None:
    """Beyond what the machine allows everybody, if this process may; root of a user namespace alone may not."""
    try:
        of.setsockopt(socket.SOL_SOCKET, forced, size_bytes)
    except PermissionError:
        of.setsockopt(socket.SOL_SOCKET, plain, size_bytes)


class End:
    """One end of a link: a probe socket and a burst socket in its namespace, and its queue towards the other end."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name = config["name"]
        self.namespace = config["namespace"]
        self.address = config["address"]
        self.interface = config["interface"]
        self.limit_bytes = config["limit_bytes"]
        self.rate_bit_s = config["rate_bit_s"]
        self.peer = ""
        self.probe, self.burst, mtu_bytes = in_network_namespace(self.namespace, self._inside)
        self.segment_bytes = min(mtu_bytes, MTU_BYTES) - _IP_UDP_BYTES
        """Payload of a packet of a burst: no larger than usual ones, whatever larger ones the link carries."""

    def counters(self) -> QueueCounters:
        """Of the queue towards the other end."""
        return _queues(self.namespace).read_one(self.interface)

    def receive(self) -> tuple[int, float] | None:
        """(number, delay) of the probe that has come; None if it is not the other end's: a worker can send here too."""
        data, ancillary, _, (sender, port) = self.probe.recvmsg(64, 64)
        if len(data) != _PROBE.size or (sender, port) != (self.peer, PORT) or not ancillary:
            return None
        number, sent_s = _PROBE.unpack(data)
        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
        return number, seconds + nanoseconds * 1e-9 - sent_s

    def _inside(self) -> tuple[socket.socket, socket.socket, int]:
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        probe.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        probe.bind((self.address, PORT))
        burst = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        _set_buffer(burst, _SO_RCVBUFFORCE, socket.SO_RCVBUF, 32 << 20)
        buffer_bytes = max(int(min(self.limit_bytes / 3, self.rate_bit_s / 8 * _DRAINS_S)), _MIN_BUFFER_BYTES)
        _set_buffer(burst, _SO_SNDBUFFORCE, socket.SO_SNDBUF, buffer_bytes)  # the kernel doubles it
        burst.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        burst.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        burst.bind((self.address, PORT + 1))
        burst.settimeout(LATE_S)
        return probe, burst, mtu_bytes_of(self.interface)


class Link:
    """Both ends, and what is measured between them."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name = config["name"]
        self.rtt_s = config["rtt_s"]
        self.a, self.b = End(config["a"]), End(config["b"])
        self.a.peer, self.b.peer = self.b.address, self.a.address
        self.number = 0

    def send_probes(self) -> int:
        """One each way; returns their number."""
        self.number += 1
        for end, other in ((self.a, self.b), (self.b, self.a)):
            end.probe.sendto(_PROBE.pack(self.number, time.time()), (other.address, PORT))
        return self.number

    def collect(self, deadline_s: float, wanted: set[int]) -> list[tuple[float, float]]:
        """(forward, backward) delays of the wanted probes that arrive before the monotonic deadline."""
        forward: dict[int, float] = {}
        backward: dict[int, float] = {}
        ends = {end.probe.fileno(): (end, delays_s) for end, delays_s in ((self.a, backward), (self.b, forward))}
        poll = select.poll()
        for descriptor in ends:
            poll.register(descriptor, select.POLLIN)
        while (left_s := deadline_s - time.monotonic()) > 0:
            if wanted <= forward.keys() and wanted <= backward.keys():
                break
            for end, delays_s in (ends[descriptor] for descriptor, _ in poll.poll(left_s * 1e3)):
                if received := end.receive():
                    delays_s[received[0]] = received[1]
        both = wanted & forward.keys() & backward.keys()
        return [(forward[number], backward[number]) for number in sorted(both)]
