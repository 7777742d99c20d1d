"""CPU seconds that a gigabyte over a WAN link costs, of all and of the delay line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common import testnet
from experiments.common.benchmark import Point
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network

_RTT_S = 0.02
_SECONDS = 8.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"rate_bit_s": 100e6, "seconds": 3.0, "repeat": 0}, 7)]
    return [
        Point({"rate_bit_s": rate, "seconds": _SECONDS, "repeat": repeat}, 12)
        for repeat in range(3)
        for rate in (10e6, 100e6, 500e6, 1000e6)
    ]


def measure(rate_bit_s: float, seconds: float, repeat: int) -> dict[str, Any]:
    topology = testnet.topology(rate_bit_s, _RTT_S)
    shaper = testnet.shaper()
    with Network(topology, tcp.profile("tuned", topology), shaper, lambda _: None) as network:
        before = _used()
        ends = testnet.flow_between(network, seconds=seconds).wait()
        after = _used()
    used_s = after.all_s - before.all_s
    gigabytes = ends["received_bytes"] / 1e9
    return {
        "shaper": shaper,
        "gigabytes": gigabytes,
        "all_s_per_gb": used_s / gigabytes,
        "all_s_per_s": used_s / (ends["last_s"] - ends["started_s"]),
        "delay_line_s_per_gb": (after.delay_lines_s - before.delay_lines_s) / gigabytes,
    }


@dataclass(frozen=True)
class Used:
    """CPU seconds since the machine, or a process, began."""

    all_s: float
    """Of every process in this pid namespace, with the children it has waited for, and of interrupts."""
    delay_lines_s: float


def _used() -> Used:
    interrupts = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[6:8]]
    all_ticks, line_ticks = sum(interrupts), 0
    for path in Path("/proc").glob("[0-9]*"):
        fields = [int(word) for word in (path / "stat").read_text().rsplit(")", 1)[1].split()[11:15]]
        all_ticks += sum(fields)
        if b"shapers.delay_line" in (path / "cmdline").read_bytes():
            line_ticks += sum(fields)
    return Used(all_ticks * _TICK_S, line_ticks * _TICK_S)
