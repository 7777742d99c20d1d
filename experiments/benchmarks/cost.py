"""CPU seconds that a gigabyte over a WAN link costs, of the machine and of the delay line; and what watching costs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from experiments.benchmarks import inside
from experiments.benchmarks.harness import Point
from testbed.orchestrator.emulation import tcp
from testbed.orchestrator.emulation.measurement import Prober
from testbed.orchestrator.emulation.network import Network
from testbed.orchestrator.observation.collector import Collector, read_host
from testbed.orchestrator.conductor import PROBE_EVERY_S

_RTT_S = 0.02
_SECONDS = 8.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"rate_bit_s": 100e6, "is_watched": True, "seconds": 3.0, "repeat": 0}, 7)]
    return [
        Point({"rate_bit_s": rate, "is_watched": watched, "seconds": _SECONDS, "repeat": repeat}, 12)
        for repeat in range(3)
        for rate in (10e6, 100e6, 500e6, 1000e6)
        for watched in (False, True)
    ]


def measure(rate_bit_s: float, is_watched: bool, seconds: float, repeat: int) -> dict[str, Any]:
    topology = inside.topology(rate_bit_s, _RTT_S)
    shaper = inside.shaper()
    events: list[dict[str, Any]] = []
    with (
        Network(topology, tcp.profile("tuned", topology), shaper, events.append) as network,
        Prober(network, events.append) as prober,
    ):
        collector = Collector(network, {}, events.append, lambda _: 0)
        if is_watched:
            collector.start()
            prober.watch(PROBE_EVERY_S)
        before, line_before_s = read_host(), _delay_lines_s()
        ends = inside.flow_between(network, seconds=seconds).wait()
        after, line_after_s = read_host(), _delay_lines_s()
        if is_watched:
            collector.stop()
        collector.close()
    used_s = (after.total_s - before.total_s) - (after.idle_s - before.idle_s)
    gigabytes = ends["received_bytes"] / 1e9
    return {
        "shaper": shaper,
        "gigabytes": gigabytes,
        "machine_s_per_gb": used_s / gigabytes,
        "machine_s_per_s": used_s / (ends["last_s"] - ends["started_s"]),
        "delay_line_s_per_gb": (line_after_s - line_before_s) / gigabytes,
        "link_events": sum(event["event"] == "link" for event in events),
        "probe_events": sum(event["event"] == "rtt" for event in events),
    }


def _delay_lines_s() -> float:
    """CPU time of the delay lines in this pid namespace."""
    used_s = 0.0
    for path in Path("/proc").glob("[0-9]*"):
        if b"shapers.delay_line" in (path / "cmdline").read_bytes():
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            used_s += (int(fields[11]) + int(fields[12])) * _TICK_S
    return used_s
