"""The process that makes background traffic: TCP flows between the routers at the two ends of links.

`python -m testbed.orchestrator.emulation.traffic.generator`; its configuration is one JSON line on stdin, commands
follow:

    {"do": "start", "at_s": 1234.5}  on the monotonic clock: from then on flows begin
    {"do": "count"}                  -> {"event": "background", ...} of each direction, then {"event": "counted"}

It runs until stdin ends. One loop serves all flows. All times here are wall-clock ones: with dilation k, flows begin k
times further apart.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import selectors
import socket
import sys
import time
from typing import Any

from testbed.core.spec.schedule import Background
from testbed.orchestrator.emulation.traffic.arrivals import flows, most_concurrent
from testbed.orchestrator.emulation.traffic.flow import PORT, Counts, Flow, Sockets

_BACKLOG = 1024
_RETIRE_EVERY_S = 0.05


class Direction:
    """The flows of one direction of a link."""

    def __init__(self, sockets: Sockets, config: dict[str, Any], dilation: float) -> None:
        self._sockets, self._config, self._dilation = sockets, config, dilation
        self._traffic = Background(**config["traffic"])
        rate_bit_s = config["rate_bit_s"] * dilation
        self._arrivals = flows(self._traffic, rate_bit_s)
        self._most = most_concurrent(self._traffic, rate_bit_s, config["rtt_s"] / dilation)
        self._start_s = self._due_s = math.inf
        self._size_bytes = 0
        self._late_s = 0.0
        """Of the flow that began latest, since the last count."""
        self._counts = Counts()
        self._unfinished: dict[tuple[str, int], Flow] = {}
        """By the sender's address."""
        self._delivered: list[Flow] = []
        """The last acknowledgement is still on its way."""
        self._retire_s = 0.0
        self._listener = sockets.new(config["to_namespace"])
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((config["to_address"], PORT))
        self._listener.listen(_BACKLOG)
        sockets.selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def start(self, at_s: float) -> None:
        self._start_s = at_s
        self._next_arrival()

    def _next_arrival(self) -> None:
        t_s, self._size_bytes = next(self._arrivals)
        self._due_s = self._start_s + t_s * self._dilation

    @property
    def due_s(self) -> float:
        """When `work` has something to do."""
        return min(self._due_s, self._retire_s) if self._delivered else self._due_s

    def work(self) -> None:
        while self._due_s <= (now_s := time.monotonic()):
            self._late_s = max(self._late_s, now_s - self._due_s)
            self._begin(self._size_bytes)
            self._next_arrival()
        if self._delivered and now_s >= self._retire_s:
            self._retire_s = now_s + _RETIRE_EVERY_S
            self._retire()

    def _begin(self, size_bytes: int) -> None:
        self._counts.offered_bytes += size_bytes
        if len(self._unfinished) >= self._most:
            self._counts.refused += 1
            return
        self._counts.flows += 1
        flow = Flow(self._sockets, self._config, size_bytes, self._ended)
        flow.begin()
        if flow.is_open:
            self._unfinished[flow.address] = flow

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                receiver, address = self._listener.accept()
                flow = self._unfinished.get(address)
                if flow is None:  # not one of ours, or one that has failed meanwhile
                    receiver.close()
                else:
                    flow.accepted(receiver)

    def _ended(self, flow: Flow) -> None:
        self._unfinished.pop(flow.address, None)
        if flow.failed:
            self._counts.failed += 1
            flow.add_to(self._counts)
            flow.close()
        else:
            self._counts.finished += 1
            self._delivered.append(flow)

    def _retire(self) -> None:
        """Count for good and forget the flows whose last byte is acknowledged."""
        under_way = []
        for flow in self._delivered:
            if flow.is_acknowledged:
                flow.add_to(self._counts)
                flow.close()
            else:
                under_way.append(flow)
        self._delivered = under_way

    def to_json(self) -> dict[str, Any]:
        late_s, self._late_s = self._late_s, 0.0
        counts = Counts(**vars(self._counts))
        for flow in (*self._unfinished.values(), *self._delivered):
            flow.add_to(counts)
        names = {"name": self._traffic.link, "from": self._traffic.source, "to": self._config["to"]}
        return {"event": "background", **names, **vars(counts), "late_s": late_s}


class Generator:
    """All directions, in one loop."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._sockets = Sockets(config["congestion_control"])
        self._directions = [Direction(self._sockets, one, config["dilation"]) for one in config["directions"]]
        self._sockets.selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._command)
        self._unread = b""
        self._is_ended = False

    def run(self) -> None:
        while not self._is_ended:
            due_s = min(direction.due_s for direction in self._directions)
            timeout_s = None if due_s == math.inf else max(0.0, due_s - time.monotonic())
            for key, _ in self._sockets.selector.select(timeout_s):
                key.data()
            for direction in self._directions:
                direction.work()

    def _command(self) -> None:
        data = os.read(sys.stdin.fileno(), 1 << 16)
        self._is_ended = not data
        *lines, self._unread = (self._unread + data).split(b"\n")
        for command in map(json.loads, lines):
            if command["do"] == "start":
                for direction in self._directions:
                    direction.start(command["at_s"])
            else:
                for direction in self._directions:
                    say(direction.to_json())
                say({"event": "counted"})


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # unbuffered, since the loop must see what follows
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as file:
        generator = Generator(json.loads(file.readline()))
    say({"event": "ready"})
    generator.run()


if __name__ == "__main__":
    main()
