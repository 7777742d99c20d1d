"""Counters of the whole machine: its cores, who waited for them, and its per-processor packet queues (softnet).

A run lies in a pid namespace of its own. What processes outside of it compute is what the machine computed less what
the processes of this namespace did: in user mode, and apart from that in the kernel, whose threads are others, too.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Softnet:
    """Sums over the processors of /proc/net/softnet_stat.

    The file is the machine's in every network namespace: packets of other runs, and of the host, count too.
    """

    processed: int
    dropped: int
    """Packets for which a processor's backlog had no room; before Linux 6.10 also those for an interface that went."""
    squeezed: int
    """How often a round ended with packets left over (time_squeeze)."""


@dataclass(frozen=True)
class HostTimes:
    """Of all cores together; None where the kernel does not say."""

    idle_s: float
    total_s: float
    steal_s: float
    user_s: float
    """Time in user mode, niced processes included."""
    kernel_s: float
    """Time in the kernel for processes; that of interrupts and of packets that come in is apart."""
    pressure_s: float | None
    softnet: Softnet | None


def parse_softnet(text: str) -> Softnet:
    """A line a processor, in it numbers in hexadecimal: processed, dropped, time_squeeze, and others."""
    rows = [[int(word, 16) for word in line.split()[:3]] for line in text.splitlines()]
    return Softnet(*(sum(column) for column in zip(*rows, strict=True)))


def _read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def read_host() -> HostTimes:
    with open("/proc/stat") as file:
        fields = [int(word) * _TICK_S for word in file.readline().split()[1:9]]
    pressure, softnet = _read("/proc/pressure/cpu"), _read("/proc/net/softnet_stat")
    return HostTimes(
        idle_s=fields[3] + fields[4],
        total_s=sum(fields),
        steal_s=fields[7],
        user_s=fields[0] + fields[1],
        kernel_s=fields[2],
        pressure_s=None if pressure is None else int(pressure.splitlines()[0].rsplit("total=", 1)[1]) * 1e-6,
        softnet=None if softnet is None else parse_softnet(softnet),
    )


class Process(NamedTuple):
    """One process: when it began, so that a number given again is another process, and what it has computed."""

    began: int
    """Ticks since the machine's start."""
    user_s: float
    kernel_s: float
    """CPU seconds in user mode and in the kernel, children that have ended included."""
    is_stopped: bool
    """True if a signal has stopped it."""


def parse_process(text: str) -> Process:
    """Return what a line of /proc/PID/stat says; the name in it may hold any character."""
    fields = text.rpartition(")")[2].split()
    user_s, kernel_s = ((int(fields[i]) + int(fields[i + 2])) * _TICK_S for i in (11, 12))
    return Process(int(fields[19]), user_s, kernel_s, fields[0] in ("T", "t"))


def read_processes() -> dict[int, Process]:
    """Return all processes of this pid namespace, and of those inside it, by their numbers."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                text = _read(f"/proc/{name}/stat")
                if text is not None:
                    found[int(name)] = parse_process(text)
    return found


def own_cpu_s(before: dict[int, Process], now: dict[int, Process]) -> tuple[float, float] | None:
    """Return CPU seconds in user mode and in the kernel between two readings.

    None if a process has ended, whose last are not known.
    """
    ended = any(pid not in now or now[pid].began != process.began for pid, process in before.items())
    if ended:
        return None
    zero = Process(0, 0.0, 0.0, is_stopped=False)
    pairs = [(process, before.get(pid, zero)) for pid, process in now.items()]
    return sum(p.user_s - b.user_s for p, b in pairs), sum(p.kernel_s - b.kernel_s for p, b in pairs)


class HostReader:
    """Reads the differences of the machine's counters, which begin at the moment it is made.

    Args:
        sees_workers: True if the run's processes are all in this pid namespace.
    """

    def __init__(self, *, sees_workers: bool = True) -> None:
        self._sees_workers = sees_workers
        self._zero = self._before = read_host()
        self._processes = read_processes()

    def read(self, interval_s: float, late_s: float) -> dict[str, Any] | None:
        """Return fields of the event `Host` for the time since the last call; None if no tick of the clock is in it."""
        now, before = read_host(), self._before
        total_s = now.total_s - before.total_s
        if total_s <= 0:
            return None
        processes, earlier = read_processes(), self._processes
        self._before, self._processes = now, processes
        own_s = own_cpu_s(earlier, processes) if self._sees_workers else None
        return {
            # the kernel may take back what it counted as waiting for a disk, a hypervisor what it counted as stolen
            "cpu_idle_ratio": max(0.0, now.idle_s - before.idle_s) / total_s,
            "cpu_pressure_s": _since(now.pressure_s, self._zero.pressure_s),
            "steal_s": max(0.0, now.steal_s - before.steal_s),
            "interval_s": interval_s,
            "sampler_late_s": late_s,
            **_softnet_since(now.softnet, self._zero.softnet),
            "foreign_cpu_s": None if own_s is None else max(0.0, now.user_s - before.user_s - own_s[0]),
            "foreign_kernel_s": None if own_s is None else max(0.0, now.kernel_s - before.kernel_s - own_s[1]),
            "stopped_processes": sum(process.is_stopped for process in processes.values()),
            "cpu_count": os.cpu_count(),
        }


def _since(now: float | None, zero: float | None) -> float | None:
    return None if now is None or zero is None else now - zero


def _softnet_since(now: Softnet | None, zero: Softnet | None) -> dict[str, int | None]:
    """The kernel's counters have 32 bits."""
    if now is None or zero is None:
        return dict.fromkeys(("softnet_processed", "softnet_dropped", "softnet_squeezed"))
    return {
        "softnet_processed": (now.processed - zero.processed) % 2**32,
        "softnet_dropped": (now.dropped - zero.dropped) % 2**32,
        "softnet_squeezed": (now.squeezed - zero.squeezed) % 2**32,
    }
