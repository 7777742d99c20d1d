"""CPU time of what watches a run, on a network without traffic: the collector, and the process that probes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources, testnet
from experiments.common.benchmark import Point
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.measuring.prober import Prober
from testbed.orchestrator.emulation.traffic.background import BackgroundTraffic
from testbed.orchestrator.observation.collector import Collector
from testbed.orchestrator.run.orchestration import PROBE_EVERY_S
from topologies import star

_SECONDS, _SETTLE_S = 10.0, 1.0


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"links": 4, "repeat": 0}, 14)]
    return [Point({"links": links, "repeat": repeat}, 14) for repeat in range(3) for links in (4, 64)]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_network(
        "testbed.orchestrator.observation.collector",
        "testbed.orchestrator.emulation.traffic.background",
        "topologies.star",
    )


def measure(links: int, repeat: int) -> dict[str, Any]:
    """A star, each worker behind a WAN link of its own."""
    topology = star.build(workers=links, rate="100 Mbit/s", rtt="20 ms", source="assumed: a point of a benchmark")
    shaper = testnet.shaper()
    events: list[dict[str, Any]] = []
    with (
        Network(topology, tcp.profile("tuned", topology), shaper, lambda _: None) as network,
        Prober(network, events.append) as prober,
        BackgroundTraffic(network, (), 1, events.append) as background,
    ):
        probing = _pid_of("testbed.orchestrator.emulation.measuring.probe")
        collector = Collector(network, {}, background, events.append, lambda _: 0)
        collector.start()
        prober.watch(PROBE_EVERY_S)
        time.sleep(_SETTLE_S)
        events.clear()
        before, started_s = (_cpu_s(os.getpid()), _cpu_s(probing)), time.monotonic()
        time.sleep(_SECONDS)
        after, wall_s = (_cpu_s(os.getpid()), _cpu_s(probing)), time.monotonic() - started_s
        kinds = [event["event"] for event in events]
        collector.stop()
        collector.close()
    return {
        "shaper": shaper,
        "wan_links": len(topology.wan_links),
        "nodes": len(network.nodes),
        "collector_s_per_s": (after[0] - before[0]) / wall_s,
        "probe_s_per_s": (after[1] - before[1]) / wall_s,
        "events_per_s": {kind: kinds.count(kind) / wall_s for kind in sorted(set(kinds))},
    }


def _cpu_s(pid: int) -> float:
    """Of all its threads that live, in the scheduler's nanoseconds: /proc/PID/stat counts in ticks of 10 ms."""
    paths = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in paths) * 1e-9


def _pid_of(module: str) -> int:
    (found,) = [path for path in Path("/proc").glob("[0-9]*") if module.encode() in (path / "cmdline").read_bytes()]
    return int(found.name)
