"""Which samples of the metrics an event gives, and what holds for a whole run."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.core.metrics import INCREMENTS, Labels
from testbed.core.records import VERDICTS
from testbed.core.spec import UNCOMPRESSED, Part, RunSpec

Sample = tuple[str, Labels, float]
"""(metric name, labels, value)."""


def samples_of(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    """Samples of one event; None where it has no value. Some counters' values are increments: see `INCREMENTS`."""
    kind = event["event"]
    if kind == "step":
        yield from _step(event)
    elif kind == "payload":
        yield "longhaul_payload_bytes", (("rank", str(event["rank"])),), event.get("payload_bytes")
    elif kind == "model":
        yield "longhaul_dense_bytes_per_step", (), event.get("dense_bytes_step")
        if event.get("metric_name"):
            yield "longhaul_run_metric_target_ratio", (("name", event["metric_name"]),), event.get("metric_target")
    elif kind == "measurement":
        yield from _measurement(event)
    elif kind == "evaluation":
        yield "longhaul_train_metric_ratio", (("name", event["name"]),), event.get("value")
    elif kind == "link":
        labels = _direction(event)
        yield "longhaul_link_transmit_bytes", labels, event.get("wire_bytes")
        yield "longhaul_link_transmit_packets", labels, event.get("packets")
        yield "longhaul_link_dropped_packets", labels, event.get("drops")
        yield "longhaul_link_queue_bytes", labels, event.get("backlog_bytes")
        rate_bit_s = event.get("rate_bit_s")  # as it stands: it may have been changed
        yield "longhaul_link_asked_bytes_per_second", labels, None if rate_bit_s is None else rate_bit_s / 8
    elif kind == "change" and event.get("from") is not None:
        yield "longhaul_link_asked_delay_seconds", _direction(event), (event.get("after") or {}).get("delay_s")
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
        yield "longhaul_collector_cpu_seconds", (), event.get("collector_cpu_s")
        yield "longhaul_observer_cpu_seconds", (), event.get("observer_cpu_s")


def _measurement(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    labels = (*_direction(event), ("stage", event["stage"]))
    rate_bit_s = event.get("rate_bit_s")
    yield "longhaul_link_measured_bytes_per_second", labels, None if rate_bit_s is None else rate_bit_s / 8
    yield "longhaul_link_measured_rtt_seconds", labels, event.get("rtt_s")


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


@dataclass(frozen=True)
class About:
    """What is told of a run beside its spec; `verdict` may still be unknown."""

    kind: str
    verdict: str
    code_hash: str
    start_unix_s: float | None


def constant_samples(spec: RunSpec, about: About) -> Iterator[Sample]:
    """What holds for the whole run: what it is, when it began and what was asked of its links, if there are any."""
    info = {
        "kind": about.kind,
        "workload": spec.workload.name,
        "strategy": spec.strategy.name,
        "parameters": _parameters(spec.compressor),
        "workers": str(spec.workers),
        "device": spec.device.name,
        "seed": str(spec.seed),
        "dilation": f"{spec.dilation:g}",
        "setting": _setting(spec, about.code_hash),
        "verdict": about.verdict,
    }
    yield "longhaul_run_info", tuple(info.items()), 1.0
    yield "longhaul_run_dilation_ratio", (), spec.dilation
    if about.start_unix_s is not None:
        yield "longhaul_run_start_timestamp_seconds", (), about.start_unix_s
    for link in () if about.kind == "measured" else spec.topology.links:
        for source, target, profile in link.directions():
            labels = (("link", link.name), ("source", source), ("target", target))
            for told in ("configured", "asked"):
                yield f"longhaul_link_{told}_bytes_per_second", labels, profile.rate_bit_s / 8
            if link.wan:
                yield "longhaul_link_asked_delay_seconds", labels, profile.delay_s
        if link.wan:
            yield "longhaul_link_configured_rtt_seconds", (("link", link.name),), link.rtt_s


def _parameters(part: Part) -> str:
    """As a user gives them, in at most 64 characters; a longer text ends with a digest of it."""
    text = " ".join(f"{key}={value}" for key, value in sorted(part.params.items()))
    return text if len(text) <= 64 else f"{text[:57]}…{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _setting(spec: RunSpec, code_hash: str) -> str:
    asked = dataclasses.replace(spec, seed=0, compressor=UNCOMPRESSED).hash
    return hashlib.sha256(f"{asked} {code_hash}".encode()).hexdigest()[:8]


def verdict_samples(verdict: str, reasons: int) -> Iterator[Sample]:
    """A state set: a series for each verdict, 1 for the one that holds."""
    for word in VERDICTS:
        yield "longhaul_verdict", (("verdict", word),), float(word == verdict)
    yield "longhaul_verdict_reasons", (), float(reasons)


class Totals:
    """Folds events into the current value of every series. Any thread may add, any other may take a snapshot."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, Labels], float] = {}
        self.events = 0
        """How many were added."""
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
            self.events += 1
        return changed

    def snapshot(self) -> dict[tuple[str, Labels], float]:
        """A copy of all current values."""
        with self._lock:
            return dict(self.values)
