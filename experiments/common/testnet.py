"""What measurements share, inside their namespaces: networks, busy cores, probes, TCP flows, queues watched."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import RunError
from testbed.core.spec.topology import Topology
from testbed.orchestrator.emulation.kernel.namespaces import Namespace
from testbed.orchestrator.emulation.kernel.queue_counters import QueueCounters
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.shapers.shaper_selection import choose
from testbed.orchestrator.machine.host_counters import read_host
from topologies import two_regions

FLOW_PORT = 62_000
_FLOW = Path(__file__).parent / "flow.py"
_TIMEOUT_S = 60.0
_SAMPLER_PRIORITY = 4
"""Below the probes' 5 and the delay lines' 10: to watch must not disturb."""
Popen = Callable[..., subprocess.Popen[Any]]


def quantile(values: list[float], share: float) -> float | None:
    """For tails; of an even number of values the middle is `median`'s."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def percentiles(delays: dict[str, Any]) -> dict[str, float | None]:
    """p50 and p99 of what `Probes.delays` gives."""
    found = {}
    for what in ("rtt", "forward", "backward"):
        found[f"{what}_p50_s"] = median(delays[f"{what}_s"])
        found[f"{what}_p99_s"] = quantile(delays[f"{what}_s"], 0.99)
    return found


def topology(rate_bit_s: float, rtt_s: float, workers: int = 2, **impairments: Any) -> Topology:
    return two_regions.build(
        workers=workers,
        rate=f"{rate_bit_s:.0f} bit/s",
        rtt=f"{rtt_s * 1e6:.0f} us",
        source="assumed: a point of a benchmark",
        **impairments,
    )


def shaper() -> str:
    """What a run would get here."""
    return choose("auto")[0]


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """So many processes of normal priority that never rest."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@contextlib.contextmanager
def awake_cores(are_awake: bool) -> Iterator[None]:
    """Cores that poll while idle instead of halting: in a virtual machine a halted one wakes late."""
    if not are_awake:
        yield
        return
    with Path("/dev/cpu_dma_latency").open("wb", buffering=0) as file:
        file.write((0).to_bytes(4, sys.byteorder))
        yield


class Idle:
    """Idle share of all cores over a block."""

    ratio: float | None = None

    def __enter__(self) -> Idle:
        self._before = read_host()
        return self

    def __exit__(self, *_: object) -> None:
        after = read_host()
        total_s = after.total_s - self._before.total_s
        self.ratio = (after.idle_s - self._before.idle_s) / total_s if total_s else None


def link_of(network: Network) -> dict[str, Any]:
    """The first WAN link as the probe process wants it: its two routers."""
    (link, *_) = network.topology.wan_links
    pairs = network.plan.wan[link.name]
    ends = {}
    for key, end, address in (("a", link.a, pairs.a_side.near), ("b", link.b, pairs.b_side.near)):
        port = network.port(link.name, end)
        ends[key] = {
            "name": end,
            "address": str(address),
            "namespace": network.nodes[end].namespace.path,
            "interface": port.interface,
            "limit_bytes": port.settings.limit_bytes,
            "rate_bit_s": port.settings.rate_bit_s,
        }
    return {"name": link.name, "rtt_s": link.rtt_s, **ends}


class Probes:
    """The probe process that runs use, on one link. A context manager."""

    def __init__(self, link: dict[str, Any]) -> None:
        self._link = link

    def __enter__(self) -> Probes:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testbed.orchestrator.emulation.measuring.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._say({"links": [self._link]})
        self._answers("ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _answers(self, last: str) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        found = []
        for line in self._process.stdout:
            found.append(json.loads(line))
            if found[-1]["event"] == last:
                return found
        raise RunError("the probe process ended")

    def delays(self, count: int, interval_s: float = 0.01) -> dict[str, Any]:
        """{"rtt_s", "forward_s", "backward_s"}: sorted."""
        self._say({"do": "rtt", "links": [self._link["name"]], "count": count, "interval_s": interval_s})
        return next(answer for answer in self._answers("finished") if answer["event"] == "probes")

    def burst(self, seconds: float) -> list[dict[str, Any]]:
        """An answer for each direction."""
        self._say({"do": "burst", "links": [self._link["name"]], "seconds": seconds})
        return [answer for answer in self._answers("finished") if answer["event"] == "burst"]


class Flow:
    """A TCP flow between two nodes, from its start on. `wait` gives what its ends saw."""

    def __init__(
        self, sender: Popen, receiver: Popen, address: str, *, seconds: float = 0, size_bytes: int = 0, port: int = 0
    ) -> None:
        python, number = [sys.executable, str(_FLOW)], port or FLOW_PORT
        self._receiver = receiver([*python, "receive", str(number)], stdout=subprocess.PIPE, text=True)
        assert self._receiver.stdout is not None
        if self._receiver.stdout.readline() != "ready\n":
            raise RunError("the receiver of a flow did not start")
        self.started_s = time.monotonic()
        command = [*python, "send", address, str(number), str(seconds), str(size_bytes)]
        self._sender = sender(command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> dict[str, Any]:
        ends: dict[str, Any] = {}
        for process in (self._sender, self._receiver):
            said, _ = process.communicate(timeout=_TIMEOUT_S)
            if process.returncode:
                raise RunError("an end of a flow failed")
            ends |= json.loads(said)
        return ends


def flow_between(network: Network, **how: Any) -> Flow:
    """From the first node to the last, over the WAN link."""
    first, *_, last = network.workers
    ends: list[Namespace] = [network.workers[name].namespace for name in (first, last)]
    return Flow(ends[0].popen, ends[1].popen, str(network.plan.node_address(last)), **how)


@dataclass(frozen=True)
class Sample:
    at_s: float
    sent_bytes: int
    backlog_bytes: int
    drops: int


class QueueWatch:
    """Reads a queue's counters every few milliseconds. A context manager."""

    _EVERY_S = 0.002
    _PROMPT_S = 2e-4
    _SHARE = 0.8

    def __init__(self, read: Callable[[], QueueCounters]) -> None:
        self._read = read
        self.samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> QueueWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        with contextlib.suppress(PermissionError):
            policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(0, policy, os.sched_param(_SAMPLER_PRIORITY))
        while not self._stop.wait(self._EVERY_S):
            before_s = time.monotonic()
            seen = self._read()
            after_s = time.monotonic()
            if after_s - before_s < self._PROMPT_S:  # otherwise nobody knows when the counters were true
                self.samples.append(Sample((before_s + after_s) / 2, seen.sent_bytes, seen.backlog_bytes, seen.drops))

    def rate_bit_s(self, from_s: float, to_s: float) -> float | None:
        """Over all of the time given."""
        inside = [sample for sample in self.samples if from_s <= sample.at_s <= to_s]
        if len(inside) < 2:
            return None
        return (inside[-1].sent_bytes - inside[0].sent_bytes) * 8 / (inside[-1].at_s - inside[0].at_s)

    def drops(self, from_s: float, to_s: float) -> int:
        inside = [sample.drops for sample in self.samples if from_s <= sample.at_s <= to_s]
        return inside[-1] - inside[0] if inside else 0

    def calm_from_s(self, from_s: float, to_s: float, calm_s: float) -> float:
        """When the queue has dropped nothing for so long, as early as can be; `to_s` if that is not before."""
        dropped = (b.at_s for a, b in itertools.pairwise(self.samples) if b.drops > a.drops)
        begin_s = from_s
        for at_s in dropped:
            if at_s > begin_s:
                break
            begin_s = max(begin_s, at_s + calm_s)
        return min(begin_s, to_s)

    def full_rate_bit_s(self, rate_bit_s: float, from_s: float, to_s: float) -> tuple[float | None, float]:
        """(rate, share of the time): between samples among which the queue cannot have run empty."""
        inside = [sample for sample in self.samples if from_s <= sample.at_s <= to_s]
        sent, full_s = 0, 0.0
        for one, following in itertools.pairwise(inside):
            gap_s = following.at_s - one.at_s
            if self._SHARE * one.backlog_bytes * 8 / rate_bit_s >= gap_s and following.backlog_bytes:
                sent += following.sent_bytes - one.sent_bytes
                full_s += gap_s
        return (sent * 8 / full_s if full_s else None), full_s / max(to_s - from_s, 1e-9)


def received_rate_bit_s(ends: dict[str, Any], from_s: float, to_s: float) -> float | None:
    """Goodput, from the receiver's samples."""
    inside = [(at_s, count) for at_s, count in ends["samples"] if from_s <= at_s <= to_s]
    if len(inside) < 2:
        return None
    return float((inside[-1][1] - inside[0][1]) * 8 / (inside[-1][0] - inside[0][0]))
