"""The process that holds packets for their time: a delay line on NFQUEUE, for kernels without sch_netem.

`python -m ...delay_line`, with its directions as the first line of JSON on stdin; it enters the middle nodes'
namespaces itself. What makes it exact, each measured:

* a packet is due at its kernel arrival time stamp plus the delay, so reading it late costs nothing. The kernel stamps
  packets only while some socket asks for stamps; one idle socket does.
* what a bucket let pass at once counts as sent at the link's rate (`transmission`).
* an absolute timerfd (an epoll time-out is in whole milliseconds), timer slack of 1 ns, real-time priority.
* whole GSO super-packets pass (a queue flag), since cutting them costs ten times the CPU.
* due times never decrease within a direction, so jitter does not reorder; it varies slowly, so that this seldom binds
  (`impairments.VaryingDelay`).

Commands, one line of JSON each, with "link" and "source", each answered by one line:

    {"do": "set", "profile": {...}, "limit_packets": n, "burst_s": s}  -> {"event": "set", "found": what is in force}
    {"do": "down"} {"do": "up"}                          -> {"event": "down"} {"event": "up"}

Prints one `delay_line` event a second and direction. Ends with its stdin.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any

from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.kernel.namespaces import in_network_namespace
from testbed.orchestrator.emulation.shapers.packet_queue import DirectionQueue
from testbed.orchestrator.machine.limits import FIFO_PRIORITY, without_real_time

_libc = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK = 0o4000
_TFD_TIMER_ABSTIME = 1
_PR_SET_TIMERSLACK = 29
_MCL_CURRENT_AND_FUTURE = 3
_SO_TIMESTAMPNS = 35
_REPORT_EVERY_S = 1.0


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


def _take_priority() -> str:
    """SCHED_FIFO where it may be had, nice -20 otherwise, or short slices; what was got is part of the record."""
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
        return without_real_time()


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Commands:
    """Lines of JSON on stdin, as they come: the loop must never wait for the rest of one."""

    def __init__(self) -> None:
        self._text = b""
        os.set_blocking(0, False)

    def read(self) -> list[dict[str, Any]] | None:
        """What has come whole; None at the end of stdin."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(0, 1 << 16)
            if not data:
                return None
            self._text += data
        *lines, self._text = self._text.split(b"\n")
        return [json.loads(line) for line in lines]

    def first(self) -> dict[str, Any]:
        while True:
            select.select([0], [], [])
            lines = self.read()
            if lines is None:
                sys.exit("no directions on stdin")
            if lines:
                return lines[0]


def _obey(command: dict[str, Any], ways: list[DirectionQueue]) -> None:
    (way,) = (way for way in ways if way.name[:2] == (command["link"], command["source"]))
    if command["do"] == "set":
        found = way.set(LinkProfile(**command["profile"]), command["limit_packets"], command["burst_s"])
        _say({"event": "set", "found": found})
    else:
        way.is_down = command["do"] == "down"
        _say({"event": command["do"]})


def _way(config: dict[str, Any]) -> DirectionQueue:
    return in_network_namespace(config["namespace"], lambda: DirectionQueue(config))


def main() -> None:
    commands = Commands()
    ways = [_way(config) for config in commands.first()["hops"]]
    stamps = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stamps.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    timer = Timer()
    poll = select.poll()
    for descriptor in (0, timer.descriptor, *(way.queue.get_fd() for way in ways)):
        poll.register(descriptor, select.POLLIN)
    gc.collect()
    gc.freeze()
    gc.disable()
    _say({"event": "ready", "priority": _take_priority(), "hops": [way.in_force for way in ways]})
    _serve(ways, timer, poll, commands)


def _serve(ways: list[DirectionQueue], timer: Timer, poll: select.poll, commands: Commands) -> None:
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
                received = commands.read()
                if received is None:
                    return
                for command in received:
                    _obey(command, ways)
            else:
                by_descriptor[descriptor].queue.run(block=False)
        for way in ways:
            way.release()
        timer.set(min((way.held[0][0] for way in ways if way.held), default=0.0))
        now_s = time.monotonic()
        if now_s - reported_s >= _REPORT_EVERY_S:
            for way in ways:
                _say(way.report(now_s - reported_s))
            reported_s = now_s


if __name__ == "__main__":
    main()
