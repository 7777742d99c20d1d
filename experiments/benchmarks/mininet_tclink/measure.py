"""The same rates with plain Mininet: two hosts, one `TCLink`. Nothing of ours shapes here."""

from __future__ import annotations

import contextlib
import logging
import os
import statistics
from collections.abc import Iterator
from typing import Any

from mininet.link import TCLink
from mininet.log import lg
from mininet.net import Mininet

from experiments.common import testnet
from experiments.common.benchmark import Point
from testbed.orchestrator.emulation.kernel.netlink import RouteSocket
from testbed.orchestrator.emulation.kernel.queue_counters import QueueReader

_BURST_S = 0.8
_BURSTS = 3
_WARM_S, _WINDOW_S = 1.0, 3.0
_LIMIT_BYTES = 1_000_000
"""What its default queue of 1000 packets holds at least."""
_TIMES_IN_FLIGHT = 4
"""A third of the limit is its sender's buffer, which the kernel doubles, and counts more than the bytes of a packet."""


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"bw_mbit_s": 100, "delay": None, "busy": False}, 9)]
    return [
        *(
            Point({"bw_mbit_s": bw, "delay": None, "busy": busy}, 10)
            for bw in (10, 100, 500, 1000)
            for busy in (False, True)
        ),
        Point({"bw_mbit_s": 2000, "delay": None, "busy": False}, 10),
        Point({"bw_mbit_s": 10_000, "delay": None, "busy": False}, 10),
        Point({"bw_mbit_s": 100, "delay": "33.5ms", "busy": False}, 10),
    ]


class _Said(logging.Handler):
    """What Mininet says of its own accord."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [line for line in record.getMessage().splitlines() if line.strip()]


@contextlib.contextmanager
def hosts(bw_mbit_s: float, delay: str | None) -> Iterator[tuple[Any, Any, _Said]]:
    """Two, one link between them as Mininet makes it, and what it said of that."""
    said = _Said()
    lg.addHandler(said)
    Mininet.inited = True  # its own set-up raises limits and sysctls of the host
    net = Mininet(topo=None, controller=None, build=False)
    a, b = net.addHost("h1", ip="10.0.0.1/24"), net.addHost("h2", ip="10.0.0.2/24")
    net.addLink(a, b, cls=TCLink, bw=bw_mbit_s, **({"delay": delay} if delay else {}))
    net.build()
    try:
        yield a, b, said
    finally:
        net.stop()
        lg.removeHandler(said)


def measure(bw_mbit_s: float, delay: str | None, busy: bool) -> dict[str, Any]:
    with hosts(bw_mbit_s, delay) as (a, b, said):
        queues = QueueReader(RouteSocket(f"/proc/{a.pid}/ns/net"))
        link = link_of(a, b, bw_mbit_s, 0.0)
        with testnet.Probes(link) as prober, testnet.busy_cores((os.cpu_count() or 1) if busy else 0):
            delays = prober.delays(100)
            rates = [one["rate_bit_s"] for _ in range(_BURSTS) for one in prober.burst(_BURST_S) if one["rate_bit_s"]]
            with testnet.QueueWatch(lambda: queues.read_one("h1-eth0")) as watch:
                flow = testnet.Flow(a.popen, b.popen, "10.0.0.2", seconds=_WARM_S + _WINDOW_S + 0.3)
                ends = flow.wait()
        from_s = ends["started_s"] + _WARM_S
        return {
            "burst_rate_bit_s": statistics.median(rates) if rates else None,
            "flow_rate_bit_s": watch.rate_bit_s(from_s, from_s + _WINDOW_S),
            "goodput_bit_s": testnet.received_rate_bit_s(ends, from_s, from_s + _WINDOW_S),
            **testnet.percentiles(delays),
            "said": said.lines[:6],
        }


def link_of(a: Any, b: Any, bw_mbit_s: float, rtt_s: float) -> dict[str, Any]:
    """As the probe process wants it. What is delayed still counts against its sender's buffer."""
    rate_bit_s = bw_mbit_s * 1e6
    limit_bytes = _LIMIT_BYTES + round(_TIMES_IN_FLIGHT * rate_bit_s / 8 * rtt_s / 2)
    ends = [
        {
            "name": host.name,
            "address": host.IP(),
            "namespace": f"/proc/{host.pid}/ns/net",
            "interface": f"{host.name}-eth0",
            "limit_bytes": limit_bytes,
            "rate_bit_s": rate_bit_s,
        }
        for host in (a, b)
    ]
    return {"name": f"{a.name}-{b.name}", "rtt_s": rtt_s, "a": ends[0], "b": ends[1]}
