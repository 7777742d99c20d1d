"""The process that holds packets for their time: a delay line on NFQUEUE, for kernels without sch_netem.

Runs in the middle node's network namespace: `python -m ...delay_line CONFIG_JSON`. What makes it exact, each measured:

* a packet is due at its kernel arrival time stamp plus the delay, so reading it late costs nothing. The kernel stamps
  packets only while some socket asks for stamps; one idle socket does.
* an absolute timerfd (an epoll time-out is in whole milliseconds), timer slack of 1 ns, real-time priority.
* whole GSO super-packets pass (a queue flag), since cutting them costs ten times the CPU.
* due times never decrease within a direction, so jitter does not reorder.

Prints one JSON line a second: per direction packets, drops and how late packets left.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from typing import Any

from netfilterqueue import COPY_PACKET, NetfilterQueue

_libc = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK = 0o4000
_TFD_TIMER_ABSTIME = 1
_PR_SET_TIMERSLACK = 29
_MCL_CURRENT_AND_FUTURE = 3
_SO_TIMESTAMPNS = 35
_NFNL_SUBSYS_QUEUE = 3
_NFQNL_MSG_CONFIG = 2
_NFQA_CFG_MASK = 4
_NFQA_CFG_FLAGS = 5
_NFQA_CFG_F_GSO = 1 << 2
_SOCKET_BUFFER_BYTES = 64 << 20
_REPORT_EVERY_S = 1.0
FIFO_PRIORITY = 10
_OLDEST_STAMP_S = 2.0


class Timer:
    """An absolute monotonic timer as a file descriptor."""

    def __init__(self) -> None:
        self.descriptor = _libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, at_s: float) -> None:
        """0 stops it."""
        whole = int(at_s)
        value = struct.pack("qqqq", 0, 0, whole, int((at_s - whole) * 1e9))
        _libc.timerfd_settime(self.descriptor, _TFD_TIMER_ABSTIME, value, None)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 8)


class Way:
    """One direction: its queue, the packets held, and how late they left."""

    def __init__(self, number: int, config: dict[str, Any]) -> None:
        self.name = (config["link"], config["source"], config["target"])
        self.number = number
        self.delay_s = config["delay_s"]
        self.jitter_s = config["jitter_s"]
        self.loss_ratio = config["loss_ratio"]
        self.limit_packets = config["limit_packets"]
        self.random = random.Random(config["seed"])
        self.held: deque[tuple[float, Any]] = deque()
        self.last_due_s = 0.0
        self.late: list[float] = []
        self.packets = 0
        self.dropped = 0
        self.clock_offset_s = 0.0
        self.queue = NetfilterQueue()
        self.queue.bind(
            number,
            self.arrive,
            max_len=self.limit_packets,
            mode=COPY_PACKET,
            range=1,  # a packet whose payload was not copied at all cannot be retained
            sock_len=_SOCKET_BUFFER_BYTES,
        )
        _let_super_packets_pass(self.queue.get_fd(), number)

    @property
    def in_force(self) -> dict[str, Any]:
        """What this process does, as opposed to what it was asked."""
        return {
            "delay_s": self.delay_s,
            "jitter_s": self.jitter_s,
            "loss_ratio": self.loss_ratio,
            "limit_packets": self.limit_packets,
        }

    def arrive(self, packet: Any) -> None:
        self.packets += 1
        if self.loss_ratio and self.random.random() < self.loss_ratio:
            self.dropped += 1
            packet.drop()
            return
        now_s = time.monotonic()
        stamp_s = packet.get_timestamp()
        arrived_s = stamp_s - self.clock_offset_s if stamp_s else now_s
        if not now_s - _OLDEST_STAMP_S < arrived_s <= now_s:
            arrived_s = now_s  # the wall clock was set, or the kernel gave no stamp
        due_s = arrived_s + self.delay_s
        if self.jitter_s:
            due_s += self.random.uniform(-self.jitter_s, self.jitter_s)
        self.last_due_s = due_s = max(due_s, self.last_due_s)
        packet.retain()
        self.held.append((due_s, packet))

    def release(self, now_s: float) -> None:
        held = self.held
        while held and held[0][0] <= now_s:
            due_s, packet = held.popleft()
            packet.accept()
            self.late.append(now_s - due_s)

    def report(self, interval_s: float, queue_drops: int) -> dict[str, Any]:
        late, self.late = sorted(self.late), []
        quantiles = {
            name: late[min(len(late) - 1, int(share * len(late)))] if late else None
            for name, share in (("late_p50_s", 0.5), ("late_p99_s", 0.99), ("late_max_s", 1.0))
        }
        link, source, target = self.name
        return {
            "event": "delay_line",
            "name": link,
            "from": source,
            "to": target,
            **quantiles,
            "packets": self.packets,
            "drops": self.dropped,
            "interval_s": interval_s,
            "queue_drops": queue_drops,
        }


def _let_super_packets_pass(descriptor: int, number: int) -> None:
    """Set NFQA_CFG_F_GSO. The kernel takes it only from the socket that bound the queue, hence the duplicate."""
    flags = struct.pack(">HHI", 8, _NFQA_CFG_FLAGS, _NFQA_CFG_F_GSO)[4:]
    mask = struct.pack(">I", _NFQA_CFG_F_GSO)
    attributes = struct.pack("=HH", 8, _NFQA_CFG_FLAGS) + flags + struct.pack("=HH", 8, _NFQA_CFG_MASK) + mask
    body = struct.pack(">BBH", 0, 0, number) + attributes
    kind = (_NFNL_SUBSYS_QUEUE << 8) | _NFQNL_MSG_CONFIG
    message = struct.pack("=IHHII", 16 + len(body), kind, 1, 0, 0) + body  # 1: NLM_F_REQUEST
    with socket.fromfd(descriptor, socket.AF_NETLINK, socket.SOCK_RAW, 12) as duplicate:  # 12: NETLINK_NETFILTER
        duplicate.send(message)


def _queue_drops() -> dict[int, int]:
    """Packets the kernel dropped by queue number: queue full (column 6), socket full (7)."""
    with open("/proc/net/netfilter/nfnetlink_queue") as file:
        rows = [[int(word) for word in line.split()] for line in file]
    return {row[0]: row[5] + row[6] for row in rows}


def _take_priority() -> str:
    """SCHED_FIFO where it may be had, nice -20 otherwise; what was got is part of the record."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    _libc.mlockall(_MCL_CURRENT_AND_FUTURE)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
        return f"fifo {FIFO_PRIORITY}"
    except PermissionError:
        pass
    try:
        os.nice(-20)
        return "nice -20"
    except PermissionError:
        return "normal"


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    config = json.loads(sys.argv[1])
    ways = [Way(number, direction) for number, direction in enumerate(config["directions"])]
    stamps = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stamps.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    timer = Timer()
    poll = select.poll()
    for descriptor in (timer.descriptor, *(way.queue.get_fd() for way in ways)):
        poll.register(descriptor, select.POLLIN)
    poll.register(0, select.POLLHUP)  # the orchestrator's end of stdin: gone means the run is over
    gc.collect()
    gc.freeze()
    gc.disable()
    _say({"event": "ready", "priority": _take_priority(), "directions": [way.in_force for way in ways]})
    _serve(ways, timer, poll)


def _serve(ways: list[Way], timer: Timer, poll: select.poll) -> None:
    by_descriptor = {way.queue.get_fd(): way for way in ways}
    reported_s = time.monotonic()
    while True:
        offset_s = time.time() - time.monotonic()
        for way in ways:
            way.clock_offset_s = offset_s
        for descriptor, _ in poll.poll(1000):
            if descriptor == timer.descriptor:
                timer.clear()
            elif descriptor == 0:
                return
            else:
                by_descriptor[descriptor].queue.run(block=False)
        now_s = time.monotonic()
        for way in ways:
            way.release(now_s)
        next_s = min((way.held[0][0] for way in ways if way.held), default=0.0)
        timer.set(next_s)
        if now_s - reported_s >= _REPORT_EVERY_S:
            drops = _queue_drops()
            for way in ways:
                _say(way.report(now_s - reported_s, drops.get(way.number, 0)))
            reported_s = now_s


if __name__ == "__main__":
    main()
