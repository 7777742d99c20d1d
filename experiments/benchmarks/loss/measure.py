"""Losses that were asked against those counted, in the delay line and by the receiver."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from experiments.common import sources, testnet
from experiments.common.benchmark import Point
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network

_STREAM = sources.file("experiments.common.stream")
_RATE_BIT_S = 10e6
"""Some 8,000 packets of the stream a second: the delay line and the receiver keep up with any machine's."""
_SHAPE = ("114", "40000")
"""Bytes of a packet, and of the sender's buffer: less than the link's queue."""
_LAST_REPORT_S = 1.3
"""A shaper reports once a second."""
_LOSSES: tuple[dict[str, Any], ...] = (
    {"loss": "0.1%"},
    {"loss": "1%"},
    {"loss": "1%", "loss_burst_packets": 8.0},
)


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"packets": 10_000, "loss": "1%"}, 6)]
    return [Point({"packets": 100_000, **asked}, 20) for asked in _LOSSES]


def measure(packets: int, **asked: Any) -> dict[str, Any]:
    topology = testnet.topology(_RATE_BIT_S, 0.02, **asked)
    (link,) = topology.wan_links
    shaper = testnet.shaper()
    events: list[dict[str, Any]] = []
    with Network(topology, tcp.profile("tuned", topology), shaper, events.append) as network:
        a, b = network.routers[link.a].namespace, network.routers[link.b].namespace
        receiver = b.popen([sys.executable, str(_STREAM), "receive"], stdout=subprocess.PIPE, text=True)
        assert receiver.stdout is not None
        receiver.stdout.readline()
        address = str(network.plan.wan[link.name].b_side.near)
        queue = network.port(link.name, link.a)
        sender = a.popen([sys.executable, str(_STREAM), "send", address, str(packets), *_SHAPE])
        said, _ = receiver.communicate(timeout=90)
        sender.wait()
        time.sleep(_LAST_REPORT_S)
        overflow = queue.read().drops
    last = [e for e in events if e["event"] == "delay_line" and e["from"] == link.a][-1]
    profile = link.forward
    return {
        "shaper": shaper,
        "asked_ratio": profile.loss_ratio,
        "deviation_ratio": (profile.loss_variance / packets) ** 0.5,
        "shaper_packets": last["packets"],
        "shaper_drops": last["drops"],
        "shaper_queue_drops": last["queue_drops"],
        "queue_drops": overflow,
        **_losses(json.loads(said), packets),
    }


def _losses(numbers: list[list[int]], packets: int) -> dict[str, Any]:
    """From the runs [first, last] of numbers that arrived."""
    edges = [-1, *(edge for run in numbers for edge in run), packets]
    bursts = [after - before - 1 for before, after in zip(edges[::2], edges[1::2], strict=True)]
    lost = [length for length in bursts if length]
    return {
        "sent": packets,
        "arrived": packets - sum(lost),
        "mean_lost_run_packets": sum(lost) / len(lost) if lost else None,
    }
