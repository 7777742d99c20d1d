"""Events of the machine. CPU times, `throttled_s`, `cpu_pressure_s` and `softnet_*` count up from the first step."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.record.events.base import Count, Event, Number, Text


@dataclass(frozen=True, kw_only=True)
class Node(Event, name="node"):
    """Resources of a node's container. Null: the kernel does not report them."""

    node: Text
    cpu_s: Number | None
    """CPU seconds."""
    throttled_s: Number | None
    """Time held back by its CPU limit."""
    memory_bytes: Count | None
    """Memory in use now."""


@dataclass(frozen=True, kw_only=True)
class Host(Event, name="host"):
    """CPUs and packet queues of the machine."""

    cpu_idle_ratio: Number
    """Idle share of CPUs, in the interval."""
    cpu_pressure_s: Number | None
    """Time that a task waited (PSI). Null if the kernel has none."""
    steal_s: Number
    """CPU seconds of other VMs, in the interval."""
    interval_s: Number
    """Seconds since the event before."""
    sampler_late_s: Number
    """Time by which this sample was late."""
    softnet_processed: Count | None
    """Packets of the whole machine. The sum over /proc/net/softnet_stat, as are the next two."""
    softnet_dropped: Count | None
    """Packets dropped by full CPU queues."""
    softnet_squeezed: Count | None
    """Times that a CPU's budget ran out."""
    collector_cpu_s: Number
    observer_cpu_s: Number
    """CPU seconds of sampling, and of all observing. Observing is the process that builds, records, serves metrics and
    displays."""
    foreign_cpu_s: Number | None = None
    """User CPU seconds of other processes, in the interval; null: unknown, as with docker. So too where a process of
    the run ended. Records without the key leave no step out."""
    foreign_kernel_s: Number | None = None
    """CPU seconds of other processes in the kernel, and of its threads; null as `foreign_cpu_s`."""
    stopped_processes: Count | None = None
    """Processes stopped by signals, and frozen nodes. Those of the run, now."""
    cpu_count: Count | None = None
    """CPUs of the machine."""


@dataclass(frozen=True, kw_only=True)
class HeldBack(Event, name="held_back"):
    """A worker sent too much, and had to wait. Recorded again when the wait has doubled."""

    rank: Count
    node: Text
    messages: Count
    size_bytes: Count
    """Messages so far, and their bytes."""
    held_s: Number
    """Wall-clock time waited."""
