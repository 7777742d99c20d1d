"""The process that measures links: one-way delays and rates, between the two ends of a link.

`python -m testbed.orchestrator.emulation.measuring.probe`: JSON lines on stdin, first the links, then commands; answers
on
stdout.

    {"links": [...]}                                                -> {"event": "ready", ...}
    {"do": "rtt", "links": [...], "count": 20, "interval_s": 0.01}  -> {"event": "probes", ...}, one a link
    {"do": "burst", "links": [...], "seconds": 0.8}                 -> {"event": "burst", ...}, one a direction
    {"do": "watch", "links": [...], "interval_s": 0.5}              -> {"event": "rtt", ...} from then on

A probe needs no echo: each end sends to the other, the kernel stamps the arrival, and both ends read the same clock. So
neither end's scheduling counts, only the moment between reading the clock and handing over the packet; the process runs
with real-time priority, below the delay lines'. Ends are routers for WAN links; access links end at the worker's
namespace and are measured before the first step only.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import sys
import time
from typing import Any

from testbed.orchestrator.emulation.measuring.burst import measure_rate
from testbed.orchestrator.emulation.measuring.endpoints import LATE_S, Link
from testbed.orchestrator.machine.limits import raise_limit, without_real_time

FIFO_PRIORITY = 5

Message = dict[str, Any]


def say(message: Message) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def measure_rtt(links: list[Link], count: int, interval_s: float) -> None:
    """All links at once."""
    numbers: dict[str, set[int]] = {link.name: set() for link in links}
    for _ in range(count):
        for link in links:
            numbers[link.name].add(link.send_probes())
        time.sleep(interval_s)
    for link in links:
        pairs = link.collect(time.monotonic() + link.rtt_s + LATE_S, numbers[link.name])
        forward, backward = [f for f, _ in pairs], [b for _, b in pairs]
        say(
            {
                "event": "probes",
                "name": link.name,
                "sent": count,
                "rtt_s": sorted(f + b for f, b in pairs),
                "forward_s": sorted(forward),
                "backward_s": sorted(backward),
                "span_s": count * interval_s,
            }
        )


def watch(links: list[Link], interval_s: float) -> None:
    """A probe a link each interval, until stdin ends."""
    next_s = time.monotonic()
    waiting: dict[str, dict[int, list[float | None]]] = {link.name: {} for link in links}
    first = {link.name: link.number for link in links}
    selector = selectors.DefaultSelector()  # select() takes no descriptor from 1024 on, and a link has four
    selector.register(sys.stdin, selectors.EVENT_READ)
    for link in links:
        for end, slot in ((link.b, 0), (link.a, 1)):
            selector.register(end.probe, selectors.EVENT_READ, (link, end, slot))
    while True:
        ready = [key.data for key, _ in selector.select(max(0.0, next_s - time.monotonic()))]
        if None in ready:  # stdin
            return
        for link, end, slot in ready:
            received = end.receive()
            if received is None or received[0] > link.number:
                continue
            number, delay_s = received
            both = waiting[link.name].setdefault(number, [None, None])
            both[slot] = delay_s
            forward_s, backward_s = both
            if forward_s is not None and backward_s is not None:
                del waiting[link.name][number]
                say(
                    {
                        "event": "rtt",
                        "name": link.name,
                        "rtt_s": forward_s + backward_s,
                        "forward_s": forward_s,
                        "backward_s": backward_s,
                        "sent": link.number - first[link.name],
                    }
                )
        if time.monotonic() >= next_s:
            next_s += interval_s
            for link in links:
                link.send_probes()
                waiting[link.name] = {n: v for n, v in waiting[link.name].items() if n > link.number - 64}


def main() -> None:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
        priority = f"fifo {FIFO_PRIORITY}"
    except PermissionError:
        priority = without_real_time()
    raise_limit()
    links = {config["name"]: Link(config) for config in json.loads(_read_line())["links"]}
    gc.freeze()
    say({"event": "ready", "priority": priority})
    # unbuffered, since `watch` must see what has not been read
    while line := _read_line():
        command = json.loads(line)
        chosen = [links[name] for name in command["links"]]
        if command["do"] == "rtt":
            measure_rtt(chosen, command["count"], command["interval_s"])
        elif command["do"] == "burst":
            for answer in measure_rate(chosen, command["seconds"]):
                say(answer)
        elif command["do"] == "watch":
            watch(chosen, command["interval_s"])
        say({"event": "finished", "do": command["do"]})


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        character = os.read(0, 1)
        if not character:
            return b""
        line += character
    return line


if __name__ == "__main__":
    main()
