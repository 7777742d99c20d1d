"""One direction of a delay line: its NFQUEUE, the packets it holds, and how late they left."""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections import deque
from typing import IO, Any

from netfilterqueue import COPY_PACKET, NetfilterQueue

from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.shapers.due_times import DueTimes
from testbed.orchestrator.emulation.shapers.impairments import Impairments
from testbed.orchestrator.emulation.shapers.shaper import asked_of
from testbed.orchestrator.emulation.shapers.transmission import Transmission

_NFNL_SUBSYS_QUEUE = 3
_NFQNL_MSG_CONFIG = 2
_CFG_QUEUE_MAXLEN, _CFG_MASK, _CFG_FLAGS = 3, 4, 5
_CFG_F_GSO = 1 << 2
_NETLINK_NETFILTER = 12
_SOCKET_BUFFER_BYTES = 64 << 20
_HEADER_ONLY, _WHOLE_PACKET = 20, 65_535
_LENGTH, _SOURCE, _DESTINATION = slice(2, 4), slice(12, 16), slice(16, 20)
"""Of an IPv4 header."""


class DirectionQueue:
    """Made inside the middle node's namespace; used from the delay line's one thread."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name = (config["link"], config["source"], config["target"])
        self.number = config["number"]
        profile = LinkProfile(**config["profile"])
        self.fate = Impairments(profile, config["seed"])
        self.transmission = _transmission(profile, config["burst_s"])
        near = ipaddress.IPv4Network(config["near"])
        self._near, self._near_mask = int(near.network_address), int(near.netmask)
        self.limit_packets = config["limit_packets"]
        self.is_down = False
        self.held: deque[tuple[float, Any, bytes | None]] = deque()
        self.due_times = DueTimes(time.monotonic())
        self.packets = self.dropped = self.doubled = 0
        self.asked_drops = self.asked_drops_variance = 0.0
        self.clock_offset_s = 0.0
        # To copy a packet its bytes are needed, checksums finished: so the kernel must cut it up first.
        self._copies = profile.duplicate_ratio > 0
        self.queue = NetfilterQueue()
        self.queue.bind(
            self.number,
            self.arrive,
            max_len=self.limit_packets,
            mode=COPY_PACKET,
            range=_WHOLE_PACKET if self._copies else _HEADER_ONLY,
            sock_len=_SOCKET_BUFFER_BYTES,
        )
        if self._copies:
            self._raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        else:
            # Whole super-packets pass, since cutting them costs ten times the CPU.
            flags = struct.pack(">I", _CFG_F_GSO)
            self._configure(_attribute(_CFG_FLAGS, flags) + _attribute(_CFG_MASK, flags))
        # thread-self: /proc/net is that of the process's first thread, which lives elsewhere
        self._counters: IO[str] = open("/proc/thread-self/net/netfilter/nfnetlink_queue")  # noqa: SIM115

    def _configure(self, attributes: bytes) -> None:
        """The kernel takes settings only from the socket that bound the queue, hence the duplicate."""
        body = struct.pack(">BBH", 0, 0, self.number) + attributes
        kind = (_NFNL_SUBSYS_QUEUE << 8) | _NFQNL_MSG_CONFIG
        message = struct.pack("=IHHII", 16 + len(body), kind, 1, 0, 0) + body  # 1: NLM_F_REQUEST
        with socket.fromfd(self.queue.get_fd(), socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as duplicate:
            duplicate.send(message)

    def set(self, profile: LinkProfile, limit_packets: int, burst_s: float) -> dict[str, Any]:
        """From the next packet on. Returns what is in force then."""
        if profile.duplicate_ratio and not self._copies:
            raise ValueError("duplication cannot be switched on while a link is up")
        self.fate.set(profile)
        self.transmission = _transmission(profile, burst_s)
        self._configure(_attribute(_CFG_QUEUE_MAXLEN, struct.pack(">I", limit_packets)))
        self.limit_packets = limit_packets
        return self.in_force

    @property
    def in_force(self) -> dict[str, Any]:
        """What this process does, as opposed to what it was asked."""
        return {**asked_of(self.fate.profile), "limit_packets": self.limit_packets}

    def arrive(self, packet: Any) -> None:
        """Called for each packet. Its kernel time stamp decides when it is due: to read it late costs nothing."""
        if self.is_down:
            packet.drop()
            return
        fate = self.fate
        self.packets += 1
        self.asked_drops += fate.profile.loss_ratio
        self.asked_drops_variance += fate.loss_variance
        stamp_s, header = packet.get_timestamp(), packet.get_payload()
        due_times = self.due_times
        arrived_s = due_times.arrived_s(stamp_s - self.clock_offset_s if stamp_s else None, time.monotonic())
        is_near = int.from_bytes(header[_SOURCE], "big") & self._near_mask == self._near
        size_bytes = int.from_bytes(header[_LENGTH], "big")
        sent_s = self.transmission.sent_s(arrived_s, size_bytes, is_in_transit=not is_near)
        if fate.is_lost():
            self.dropped += 1
            packet.drop()
            return
        if fate.draws_rest and fate.overtakes():
            packet.accept()
            return
        due_s = due_times.due_s(sent_s, fate.delay_s(sent_s - due_times.began_s))
        copy = header if fate.draws_rest and fate.is_doubled() else None
        packet.retain()
        self.held.append((due_s, packet, copy))

    def release(self) -> None:
        """What is due by now. To let packets go takes its time, by which those behind them are late."""
        held, late_s = self.held, self.due_times.late_s
        now_s = due_by_s = time.monotonic()
        while held and held[0][0] <= due_by_s:
            due_s, packet, copy = held.popleft()
            late_s.append(now_s - due_s)
            packet.accept()
            if copy is not None:
                self._send_again(copy)
            now_s = time.monotonic()

    def _send_again(self, packet: bytes) -> None:
        self.doubled += 1
        self._raw.sendto(packet, (socket.inet_ntoa(packet[_DESTINATION]), 0))

    def _queue_drops(self) -> int:
        """Packets the kernel dropped: queue full (column 6), socket full (7)."""
        self._counters.seek(0)
        for line in self._counters:
            row = [int(word) for word in line.split()]
            if row[0] == self.number:
                return row[5] + row[6]
        raise RuntimeError(f"queue {self.number} is gone")

    def report(self, interval_s: float) -> dict[str, Any]:
        link, source, target = self.name
        return {
            "event": "delay_line",
            "name": link,
            "from": source,
            "to": target,
            **self.due_times.figures(),
            "packets": self.packets,
            "drops": self.dropped,
            "asked_drops": self.asked_drops,
            "asked_drops_variance": self.asked_drops_variance,
            "doubled": self.doubled,
            "interval_s": interval_s,
            "queue_drops": self._queue_drops(),
        }


def _transmission(profile: LinkProfile, burst_s: float) -> Transmission:
    return Transmission(profile.rate_bit_s, burst_s, profile.mtu_bytes)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value
