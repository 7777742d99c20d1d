"""Every metric, and which samples an event gives: the live exporter and the archived record both read this table.

Prometheus conventions: prefix `longhaul_`, base units, `_total` on counters, bytes rather than bits. Times of samples
are emulated seconds. Labels stay few: never a step, a tensor's name or a seed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.core.records import VERDICTS
from testbed.core.spec import RunSpec

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Metric:
    name: str
    """Without the `_total` of a counter."""
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> str:
        """The name a sample bears."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_LINK = ("link", "source", "target")
_M = Metric

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _M(
            "longhaul_run_info",
            "gauge",
            "1; the labels describe the run.",
            ("workload", "strategy", "workers", "verdict"),
        ),
        _M("longhaul_run_start_timestamp_seconds", "gauge", "Unix time at which the run's first step began."),
        _M(
            "longhaul_verdict",
            "gauge",
            "1 for the verdict as it stands, 0 for the others; archived, the final one at the run's end.",
            ("verdict",),
        ),
        _M("longhaul_verdict_reasons", "gauge", "Number of reasons against the verdict `valid`."),
        _M("longhaul_train_steps", "counter", "Optimizer steps taken.", ("rank",)),
        _M("longhaul_train_samples", "counter", "Training samples consumed.", ("rank",)),
        _M("longhaul_train_loss", "gauge", "Training loss of the rank's last batch.", ("rank",)),
        _M("longhaul_train_step_seconds", "gauge", "Emulated duration of the rank's last step.", ("rank",)),
        _M(
            "longhaul_train_phase_seconds",
            "counter",
            "Emulated seconds spent in a phase of the step.",
            ("rank", "phase"),
        ),
        _M("longhaul_train_cpu_seconds", "counter", "CPU seconds of the rank's training thread.", ("rank",)),
        _M(
            "longhaul_train_late_seconds",
            "counter",
            "Emulated seconds by which the rank sent later than the device it stands for.",
            ("rank",),
        ),
        _M(
            "longhaul_train_queued_seconds",
            "counter",
            "Emulated seconds in which the rank's messages waited for a core.",
            ("rank",),
        ),
        _M("longhaul_train_metric_ratio", "gauge", "Last value of the workload's metric.", ("name",)),
        _M("longhaul_payload_bytes", "counter", "Bytes the algorithm sent, framing included.", ("rank",)),
        _M(
            "longhaul_link_transmit_bytes",
            "counter",
            "Bytes that left a link's queue, all headers and retransmissions included, probes excluded.",
            _LINK,
        ),
        _M("longhaul_link_transmit_packets", "counter", "Packets that left a link's queue.", _LINK),
        _M("longhaul_link_dropped_packets", "counter", "Packets dropped at a link's queue.", _LINK),
        _M("longhaul_link_queue_bytes", "gauge", "Bytes waiting in a link's queue.", _LINK),
        _M(
            "longhaul_link_configured_bytes_per_second",
            "gauge",
            "Rate asked of a link, Ethernet header included.",
            _LINK,
        ),
        _M(
            "longhaul_link_configured_rtt_seconds",
            "gauge",
            "Round trip asked of a WAN link, without queueing.",
            ("link",),
        ),
        _M(
            "longhaul_link_rtt_seconds",
            "gauge",
            "Round trip of the last probe over a WAN link, queueing included.",
            ("link",),
        ),
        _M(
            "longhaul_delay_line_late_seconds",
            "gauge",
            "99th percentile of how late packets left the delay line.",
            _LINK,
        ),
        _M(
            "longhaul_delay_line_dropped_packets",
            "counter",
            "Packets lost for want of room in the delay line.",
            _LINK,
        ),
        _M("longhaul_tcp_smoothed_rtt_seconds", "gauge", "Largest smoothed RTT of a node's connections.", ("node",)),
        _M("longhaul_tcp_min_rtt_seconds", "gauge", "Largest minimum RTT of a node's connections.", ("node",)),
        _M("longhaul_tcp_retransmitted_segments", "counter", "Segments a node sent again.", ("node",)),
        _M("longhaul_node_cpu_seconds", "counter", "CPU seconds of a node's container.", ("node",)),
        _M(
            "longhaul_node_throttled_seconds",
            "counter",
            "Seconds a node's container was held back by its quota.",
            ("node",),
        ),
        _M("longhaul_node_memory_bytes", "gauge", "Memory charged to a node's container.", ("node",)),
        _M("longhaul_host_cpu_idle_ratio", "gauge", "Idle share of all cores over the last interval."),
        _M("longhaul_host_cpu_pressure_seconds", "counter", "Seconds in which some task waited for a core."),
        _M(
            "longhaul_host_softnet_processed_packets",
            "counter",
            "Packets that the machine's processors received, those of other runs too.",
        ),
        _M(
            "longhaul_host_softnet_dropped_packets",
            "counter",
            "Packets for which a processor's backlog had no room, those of other runs too.",
        ),
        _M(
            "longhaul_host_softnet_squeezes",
            "counter",
            "Times a processor's round of receiving ended with packets left over (time_squeeze).",
        ),
        _M("longhaul_sampler_late_seconds", "gauge", "How late the collector took its last sample."),
    )
}

Sample = tuple[str, Labels, float]
"""(metric name, labels, value)."""


def samples_of(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    """Samples of one event; None where it has no value. Some counters' values are increments: see `INCREMENTS`."""
    kind = event["event"]
    if kind == "step":
        yield from _step(event)
    elif kind == "payload":
        yield "longhaul_payload_bytes", (("rank", str(event["rank"])),), event.get("payload_bytes")
    elif kind == "evaluation":
        yield "longhaul_train_metric_ratio", (("name", event["name"]),), event.get("value")
    elif kind == "link":
        labels = _direction(event)
        yield "longhaul_link_transmit_bytes", labels, event.get("wire_bytes")
        yield "longhaul_link_transmit_packets", labels, event.get("packets")
        yield "longhaul_link_dropped_packets", labels, event.get("drops")
        yield "longhaul_link_queue_bytes", labels, event.get("backlog_bytes")
    elif kind == "rtt":
        yield "longhaul_link_rtt_seconds", (("link", event["name"]),), event.get("rtt_s")
    elif kind == "delay_line":
        labels = _direction(event)
        yield "longhaul_delay_line_late_seconds", labels, event.get("late_p99_s")
        yield "longhaul_delay_line_dropped_packets", labels, event.get("queue_drops")
    elif kind == "tcp":
        labels = (("node", event["node"]),)
        yield "longhaul_tcp_smoothed_rtt_seconds", labels, event.get("rtt_s")
        yield "longhaul_tcp_min_rtt_seconds", labels, event.get("min_rtt_s")
        yield "longhaul_tcp_retransmitted_segments", labels, event.get("retransmitted")
    elif kind == "node":
        labels = (("node", event["node"]),)
        yield "longhaul_node_cpu_seconds", labels, event.get("cpu_s")
        yield "longhaul_node_throttled_seconds", labels, event.get("throttled_s")
        yield "longhaul_node_memory_bytes", labels, event.get("memory_bytes")
    elif kind == "host":
        yield "longhaul_host_cpu_idle_ratio", (), event.get("cpu_idle_ratio")
        yield "longhaul_host_cpu_pressure_seconds", (), event.get("cpu_pressure_s")
        yield "longhaul_host_softnet_processed_packets", (), event.get("softnet_processed")
        yield "longhaul_host_softnet_dropped_packets", (), event.get("softnet_dropped")
        yield "longhaul_host_softnet_squeezes", (), event.get("softnet_squeezed")
        yield "longhaul_sampler_late_seconds", (), event.get("sampler_late_s")


def _direction(event: dict[str, Any]) -> Labels:
    return (("link", event["name"]), ("source", event["from"]), ("target", event["to"]))


def _step(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    rank = (("rank", str(event["rank"])),)
    yield "longhaul_train_steps", rank, 1
    yield "longhaul_train_samples", rank, event.get("samples")
    yield "longhaul_train_loss", rank, event.get("loss")
    yield "longhaul_train_step_seconds", rank, event.get("step_s")
    yield "longhaul_payload_bytes", rank, event.get("payload_bytes")
    for key in ("cpu", "late", "queued"):
        yield f"longhaul_train_{key}_seconds", rank, event.get(f"{key}_s")
    for phase, seconds in (event.get("phase_s") or {}).items():
        yield "longhaul_train_phase_seconds", (("rank", str(event["rank"])), ("phase", phase)), seconds


INCREMENTS = frozenset(
    {
        "longhaul_train_steps",
        "longhaul_train_samples",
        "longhaul_train_phase_seconds",
        "longhaul_train_cpu_seconds",
        "longhaul_train_late_seconds",
        "longhaul_train_queued_seconds",
        "longhaul_payload_bytes",
    }
)
"""Counters whose events carry what was added since the one before; `Totals` sums them."""


FIRST_STEP_COUNTERS = INCREMENTS | {
    "longhaul_link_transmit_bytes",
    "longhaul_link_transmit_packets",
    "longhaul_link_dropped_packets",
    "longhaul_node_cpu_seconds",
    "longhaul_host_cpu_pressure_seconds",
    "longhaul_host_softnet_processed_packets",
    "longhaul_host_softnet_dropped_packets",
    "longhaul_host_softnet_squeezes",
}
"""Counters that are 0 when the first step begins, so that a record may say so; of others the value there is unknown."""


def run_labels(run_id: str, topo: str, compressor: str) -> Labels:
    """The labels that every series bears: one exporter serves run after run, and dashboards choose by them."""
    return (("run", run_id), ("topo", topo), ("compressor", compressor))


def constant_samples(spec: RunSpec, verdict: str, start_unix_s: float | None) -> Iterator[Sample]:
    """What holds for the whole run: what it is, when it began and what was asked of its links."""
    info = {
        "workload": spec.workload.name,
        "strategy": spec.strategy.name,
        "workers": str(spec.workers),
        "verdict": verdict,
    }
    yield "longhaul_run_info", tuple(info.items()), 1.0
    if start_unix_s is not None:
        yield "longhaul_run_start_timestamp_seconds", (), start_unix_s
    for link in spec.topology.links:
        for source, target, profile in link.directions():
            labels = (("link", link.name), ("source", source), ("target", target))
            yield "longhaul_link_configured_bytes_per_second", labels, profile.rate_bit_s / 8
        if link.wan:
            yield "longhaul_link_configured_rtt_seconds", (("link", link.name),), link.rtt_s


def verdict_samples(verdict: str, reasons: int) -> Iterator[Sample]:
    """A state set: a series for each verdict, 1 for the one that holds."""
    for word in VERDICTS:
        yield "longhaul_verdict", (("verdict", word),), float(word == verdict)
    yield "longhaul_verdict_reasons", (), float(reasons)


class Totals:
    """Folds events into the current value of every series. Any thread may add, any other may take a snapshot."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, Labels], float] = {}
        self._lock = threading.Lock()

    def add(self, event: dict[str, Any]) -> list[Sample]:
        """Return the samples of `event` as they stand after it. Missing (None) values give none."""
        changed: list[Sample] = []
        found = list(samples_of(event))
        with self._lock:
            for name, labels, value in found:
                if value is None:
                    continue
                key = (name, labels)
                if name in INCREMENTS:
                    value = self.values.get(key, 0.0) + value
                self.values[key] = value
                changed.append((name, labels, value))
        return changed

    def snapshot(self) -> dict[tuple[str, Labels], float]:
        """A copy of all current values."""
        with self._lock:
            return dict(self.values)
