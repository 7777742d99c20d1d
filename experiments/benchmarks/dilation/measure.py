"""The same transfer over the same link, slowed k times: in emulated time (wall time / k) it should take the same."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources, testnet
from experiments.common.benchmark import Point
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network

_RANK = sources.file("experiments.common.rank")
_RATE_BIT_S, _RTT_S = 200e6, 0.040
_BULK_BYTES = 20_000_000
_REDUCED_BYTES = 10_000_000
_BULKS, _WARM_CALLS = 3, 4
_REPEATS, _MAX_JUDGED_K = 3, 4
_BULK_S, _CALL_S, _START_S = 1.1, 1.0, 14
"""Emulated seconds of each, about; wall seconds until four ranks have met."""


def points(*, quick: bool) -> list[Point]:
    if quick:
        asked = {"what": "bulk", "congestion": "reno", "repeat": 0}
        return [Point({**asked, "k": k}, 4 + _BULKS * _BULK_S * k) for k in (1, 2)]
    bulk, calls = 4 + _BULKS * _BULK_S, (1 + _WARM_CALLS) * _CALL_S
    return [
        Point(
            {"what": what, "congestion": congestion, "k": k, "repeat": repeat},
            bulk * k if what == "bulk" else _START_S + calls * k,
        )
        for k in (1, 2, 4, 8)
        for congestion in ("reno", "bbr")
        for what in ("bulk", "all_reduce")
        for repeat in range(_REPEATS if k <= _MAX_JUDGED_K else 1)
    ]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_network("experiments.common.rank")


def measure(what: str, congestion: str, k: float, repeat: int) -> dict[str, Any]:
    """All times in emulated seconds. Each repeat has connections of its own: one's calls are alike by their windows."""
    del repeat
    topology = testnet.topology(_RATE_BIT_S, _RTT_S, workers=4).dilated(k)
    with Network(topology, tcp.profile(congestion, topology, k), testnet.shaper(), lambda _: None) as network:
        if what == "bulk":
            ends = [
                testnet.flow_between(network, size_bytes=_BULK_BYTES, port=testnet.FLOW_PORT + index).wait()
                for index in range(_BULKS)
            ]
            times = [(one["last_s"] - one["started_s"]) / k for one in ends]
            return {"first_s": times[0], "warm_s": times, "median_s": statistics.median(times)}
        first, *warm = [seconds / k for seconds in _all_reduces(network)]
        return {"first_s": first, "warm_s": warm, "median_s": statistics.median(warm)}


def _all_reduces(network: Network) -> list[float]:
    nodes = list(network.workers)
    address = str(network.plan.node_address(nodes[0]))
    ranks = [
        network.workers[node].namespace.popen(
            [
                sys.executable,
                str(_RANK),
                str(rank),
                str(len(nodes)),
                address,
                str(_REDUCED_BYTES),
                str(1 + _WARM_CALLS),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, node in enumerate(nodes)
    ]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    found: list[float] = json.loads(said[0])
    return found
