"""The host-side collector: once a second the kernel's counters of every namespace become events.

It reads over netlink and from /proc and cgroups; it never sends a packet. Counters are given relative to the moment at
which the first step began.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.record.events.machine import Host, Node
from testbed.core.record.events.network import ForeignInterface, Link, Tcp
from testbed.orchestrator.emulation.containers.docker_container import DockerContainer
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.kernel.queue_counters import QueueCounters
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.links.port import WAKING_BYTES, Port
from testbed.orchestrator.emulation.traffic.background import BackgroundTraffic
from testbed.orchestrator.machine.host_counters import HostReader
from testbed.orchestrator.observation.sockets import ConnectionReader

# A container's processor time, throttling and memory, from cgroup v1 or v2.

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Usage:
    """None where the machine's cgroups do not say."""

    cpu_s: float | None
    throttled_s: float | None
    memory_bytes: int | None


def _number(path: Path, key: str | None = None) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        text = path.read_text()
        if key is None:
            return int(text)
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def usage(name: str) -> Usage:
    """Of the cgroup `name`, which lies at the root of each hierarchy."""
    if (ROOT / "cgroup.controllers").exists():
        group = ROOT / name
        return Usage(
            _scaled(_number(group / "cpu.stat", "usage_usec"), 1e-6),
            _scaled(_number(group / "cpu.stat", "throttled_usec"), 1e-6),
            _number(group / "memory.current"),
        )
    return Usage(
        _scaled(_number(ROOT / "cpuacct" / name / "cpuacct.usage"), 1e-9),
        _scaled(_number(ROOT / "cpu" / name / "cpu.stat", "throttled_time"), 1e-9),
        _number(ROOT / "memory" / name / "memory.usage_in_bytes"),
    )


def is_frozen(name: str) -> bool:
    """Return True if the freezer of the cgroup `name` (v1 or v2) holds its processes still."""
    state = Path("freezer") / name / "freezer.state"
    with contextlib.suppress(OSError):
        if (ROOT / "cgroup.controllers").exists():
            return (ROOT / name / "cgroup.freeze").read_text().strip() == "1"
        return (ROOT / state).read_text().strip() != "THAWED"
    return False


INTERVAL_S = 1.0
_WINDOW_S, _MIN_WINDOW_S = 0.05, 0.01
"""A link's queue is looked at twice, this far apart at most and at least; if it was never empty, its rate counts."""
_PROMPT_S = 1e-3
"""A reading that took longer has no time that fits a window of some tens of milliseconds."""
_WINDOW_SHARE = 0.8
"""Of the time that the waiting bytes take to leave."""
MAX_CONNECTIONS = 4096
"""Read in one sample: of more workers than 64, which all know each other, some are read in each, in turn."""
PROBE_FRAME_BYTES = 58
"""Ethernet, IP and UDP headers and 16 bytes of probe."""


class Collector:
    """Samples until `stop`, which takes a last sample."""

    def __init__(
        self,
        network: Network,
        containers: Mapping[str, Container | DockerContainer],
        background: BackgroundTraffic,
        write: Callable[[dict[str, Any]], None],
        probes_sent: Callable[[str], int],
    ) -> None:
        self._network = network
        self._containers = containers
        self._background = background
        self._write = write
        self._probes_sent = probes_sent
        self._queues = network.queues
        self._connections = {name: ConnectionReader(node.namespace.path) for name, node in network.workers.items()}
        self._foreign: set[tuple[str, str]] = set()
        """What was told already."""
        self._turn = 0
        """Of the nodes whose connections are read."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="collector")
        self.failure: BaseException | None = None

    @property
    def failure_text(self) -> str | None:
        return None if self.failure is None else f"the collector broke: {self.failure!r}"

    def foreign_interfaces(self) -> list[tuple[str, str]]:
        """(node, interface) of what a worker's namespace now holds beside loopback and its emulated interface.

        Each is told once.
        """
        found = []
        for name, node in self._network.workers.items():
            extra = set(self._queues[node.name].interfaces()) - {"lo", "eth0"}
            found += [(name, interface) for interface in sorted(extra) if (name, interface) not in self._foreign]
        self._foreign.update(found)
        return found

    def congestion_controls(self) -> set[str]:
        """As the workers' connections report them."""
        return {c.congestion_control for reader in self._connections.values() for c in reader.read()}

    def start(self) -> None:
        """Take the counters of now as zero and begin."""
        self._zero = self._read_queues()
        self._zero_usage = self._read_usage()
        self._before = self._zero
        in_docker = any(isinstance(one, DockerContainer) for one in self._containers.values())
        self._host = HostReader(sees_workers=not in_docker)
        self._zero_process_s = time.process_time()
        self._sampled_s = self._due_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._stop.wait(max(0.0, self._due_s + INTERVAL_S - time.monotonic())):
                self._due_s += INTERVAL_S
                self._sample()
            self._due_s = time.monotonic()
            self._sample()
        except BaseException as error:  # a run whose observation broke must not pass for a good one
            self.failure = error

    def _read_queues(self) -> dict[tuple[str, str, str], QueueCounters]:
        by_node = {name: reader.read() for name, reader in self._queues.items()}
        return {port.key: by_node[port.node.name][port.interface] for port in self._network.ports}

    def _read_usage(self) -> dict[str, Usage]:
        return {node: usage(container.name) for node, container in self._containers.items()}

    def _sample(self) -> None:
        started_s = time.monotonic()
        late_s = max(0.0, started_s - self._due_s)
        interval_s = started_s - self._sampled_s
        self._background.sample()
        counters = self._read_queues()
        busy = self._windows()
        for port in self._network.ports:
            self._write_link(port, counters[port.key], interval_s, busy.get(port.key, (0.0, 0)))
        self._write_connections()
        self._write_nodes()
        self._write_host(interval_s, late_s)
        for node, interface in self.foreign_interfaces():
            self._write(ForeignInterface(node=node, interface=interface).to_json())
        self._before, self._sampled_s = counters, started_s

    def _windows(self) -> dict[tuple[str, str, str], tuple[float, int]]:
        """(seconds, bytes) for each WAN direction whose queue cannot run empty within a short window from now.

        That a queue is non-empty at both ends of a window does not do: with a sender that keeps it short it runs empty
        in between. So the window is shorter than what is waiting takes to leave.
        """
        first: dict[tuple[str, str, str], tuple[float, QueueCounters, int]] = {}
        window_s = _WINDOW_S
        for port in self._network.ports:
            if port.link.wan:
                at_s, seen = self._read_at(port)
                lasts_s = _WINDOW_SHARE * seen.backlog_bytes * 8 / port.settings.rate_bit_s
                if at_s is not None and lasts_s >= _MIN_WINDOW_S:
                    first[port.key] = (at_s, seen, port.changes)
                    window_s = min(window_s, lasts_s)
        if not first:
            return {}
        time.sleep(window_s)
        found = {}
        for port in self._network.ports:
            if port.key in first:
                at_s, seen = self._read_at(port)
                then_s, before, changes = first[port.key]
                if at_s is not None and seen.backlog_bytes and port.changes == changes:
                    found[port.key] = (at_s - then_s, seen.sent_bytes - before.sent_bytes)
        return found

    def _read_at(self, port: Port) -> tuple[float | None, QueueCounters]:
        """A port's counters and when they were true; None if this thread was held up while it read them."""
        before_s = time.monotonic()
        seen = port.read()
        after_s = time.monotonic()
        return ((before_s + after_s) / 2 if after_s - before_s < _PROMPT_S else None), seen

    def _write_link(self, port: Port, now: QueueCounters, interval_s: float, busy: tuple[float, int]) -> None:
        zero = self._zero[port.key]
        probes = self._probes_sent(port.link.name) if port.link.wan else 0
        others = self._background.wire_bytes(port.link.name, port.source) if port.link.wan else 0
        excluded = probes * PROBE_FRAME_BYTES + others + port.changes * WAKING_BYTES
        self._write(
            Link(
                name=port.link.name,
                from_=port.source,
                to=port.target,
                wan=port.link.wan,
                wire_bytes=max(0, now.sent_bytes - zero.sent_bytes - excluded),
                packets=max(0, now.packets - zero.packets - probes),
                drops=now.drops - zero.drops,
                backlog_bytes=now.backlog_bytes,
                interval_s=interval_s,
                busy_s=busy[0],
                busy_bytes=busy[1],
                excluded_bytes=excluded,
                rate_bit_s=port.profile.rate_bit_s,
            ).to_json()
        )

    def _write_connections(self) -> None:
        for node in self._next_nodes():
            connections = self._connections[node].read()
            self._write(
                Tcp(
                    node=node,
                    rtt_s=max((c.rtt_s for c in connections), default=None),
                    min_rtt_s=max((c.min_rtt_s for c in connections), default=None),
                    retransmitted=sum(c.retransmitted for c in connections),
                    delivered_bytes=sum(c.delivered_bytes for c in connections),
                ).to_json()
            )

    def _next_nodes(self) -> list[str]:
        nodes = list(self._connections)
        count = min(len(nodes), max(1, MAX_CONNECTIONS // len(nodes)))
        first, self._turn = self._turn, (self._turn + count) % len(nodes)
        return [nodes[(first + index) % len(nodes)] for index in range(count)]

    def _write_nodes(self) -> None:
        for node, now in self._read_usage().items():
            zero = self._zero_usage[node]
            self._write(
                Node(
                    node=node,
                    cpu_s=_since(now.cpu_s, zero.cpu_s),
                    throttled_s=_since(now.throttled_s, zero.throttled_s),
                    memory_bytes=now.memory_bytes,
                ).to_json()
            )

    def _write_host(self, interval_s: float, late_s: float) -> None:
        found = self._host.read(interval_s, late_s)
        if found is not None:
            found["stopped_processes"] += sum(is_frozen(container.name) for container in self._containers.values())
            observer_s = time.process_time() - self._zero_process_s
            self._write(Host(**found, collector_cpu_s=time.thread_time(), observer_cpu_s=observer_s).to_json())

    def close(self) -> None:
        for connections in self._connections.values():
            connections.close()


def _since(now: float | None, zero: float | None) -> float | None:
    """A container that was started again counts from nothing."""
    return None if now is None or zero is None else now - zero if now >= zero else now
