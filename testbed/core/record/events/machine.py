"""Events of the machine. CPU times, `throttled_s`, `cpu_pressure_s` and `softnet_*` count up from the first step."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.record.events.base import Count, Event, Number, Text


@dataclass(frozen=True, kw_only=True)
class Node(Event, name="node"):
    """Resources of one node's container; null if the kernel does not report them."""

    node: Text
    cpu_s: Number | None
    """CPU seconds."""
    throttled_s: Number | None
    """Seconds in which its CPU limit held it back."""
    memory_bytes: Count | None
    """Memory in use now."""


@dataclass(frozen=True, kw_only=True)
class Host(Event, name="host"):
    """CPUs and packet queues of the machine."""

    cpu_idle_ratio: Number
    """Idle share of all CPUs in the interval."""
    cpu_pressure_s: Number | None
    """Seconds in which some task waited for a CPU (PSI); null if the kernel has none."""
    steal_s: Number
    """CPU seconds that other virtual machines took in the interval."""
    interval_s: Number
    """Seconds since the event before."""
    sampler_late_s: Number
    """Seconds by which this sample was taken later than due."""
    softnet_processed: Count | None
    """Packets of the whole machine, the sum over /proc/net/softnet_stat, as are the next two."""
    softnet_dropped: Count | None
    """Packets that the kernel dropped because a CPU's queue was full."""
    softnet_squeezed: Count | None
    """Times that a CPU ran out of budget with packets left."""
    collector_cpu_s: Number
    """CPU seconds of the thread that takes these samples."""
    observer_cpu_s: Number
    """CPU seconds of the process that builds, records, serves metrics and displays, this thread included."""
    foreign_cpu_s: Number | None = None
    """User-mode CPU seconds of other processes in the interval; null if unknown.

    Unknown: with docker, or where a process of the run ended. Records without the key leave no step out."""
    stopped_processes: Count | None = None
    """Processes of the run that a signal holds stopped now, and nodes that their cgroup's freezer does."""
    cpu_count: Count | None = None
    """CPUs of the machine."""


@dataclass(frozen=True, kw_only=True)
class HeldBack(Event, name="held_back"):
    """A worker sent more messages than a run bears, and had to wait. Recorded again when the wait has doubled."""

    rank: Count
    node: Text
    messages: Count
    """Messages that it has sent so far."""
    size_bytes: Count
    """Bytes of these messages."""
    held_s: Number
    """Wall seconds that it has waited so far."""
