"""Which samples of the metrics an event gives, and what holds for a whole run."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.core.record.metrics import INCREMENTS, Labels
from testbed.core.record.summary import VERDICTS
from testbed.core.spec.run_spec import UNCOMPRESSED, Part, RunSpec

Sample = tuple[str, Labels, float]
"""(metric name, labels, value)."""


def samples_of(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    """Samples of one event; None where it has no value. Some counters' values are increments: see `INCREMENTS`."""
    kind = event["event"]
    if kind in _AS_TOLD:
        labels_of, keys = _AS_TOLD[kind]
        labels = labels_of(event)
        yield from ((metric, labels, event.get(key)) for metric, key in keys.items())
    if kind in _WORKED_OUT:
        yield from _WORKED_OUT[kind](event)


def _none(event: dict[str, Any]) -> Labels:
    return ()


def _rank(event: dict[str, Any]) -> Labels:
    return (("rank", str(event["rank"])),)


def _node(event: dict[str, Any]) -> Labels:
    return (("node", str(event["node"])),)


def _direction(event: dict[str, Any]) -> Labels:
    return (("link", str(event["name"])), ("source", str(event["from"])), ("target", str(event["to"])))


_AS_TOLD: Mapping[str, tuple[Callable[[dict[str, Any]], Labels], Mapping[str, str]]] = {
    "step": (
        _rank,
        {
            "longhaul_train_samples": "samples",
            "longhaul_train_loss": "loss",
            "longhaul_train_step_seconds": "step_s",
            "longhaul_payload_bytes": "payload_bytes",
            "longhaul_train_cpu_seconds": "cpu_s",
            "longhaul_train_late_seconds": "late_s",
            "longhaul_train_queued_seconds": "queued_s",
        },
    ),
    "payload": (_rank, {"longhaul_payload_bytes": "payload_bytes"}),
    "model": (_none, {"longhaul_dense_bytes_per_step": "dense_bytes_step"}),
    "evaluation": (lambda event: (("name", str(event["name"])),), {"longhaul_train_metric_ratio": "value"}),
    "link": (
        _direction,
        {
            "longhaul_link_transmit_bytes": "wire_bytes",
            "longhaul_link_transmit_packets": "packets",
            "longhaul_link_dropped_packets": "drops",
            "longhaul_link_queue_bytes": "backlog_bytes",
        },
    ),
    "rtt": (lambda event: (("link", str(event["name"])),), {"longhaul_link_rtt_seconds": "rtt_s"}),
    "delay_line": (
        _direction,
        {"longhaul_delay_line_late_seconds": "late_p99_s", "longhaul_delay_line_dropped_packets": "queue_drops"},
    ),
    "tcp": (
        _node,
        {
            "longhaul_tcp_smoothed_rtt_seconds": "rtt_s",
            "longhaul_tcp_min_rtt_seconds": "min_rtt_s",
            "longhaul_tcp_retransmitted_segments": "retransmitted",
        },
    ),
    "node": (
        _node,
        {
            "longhaul_node_cpu_seconds": "cpu_s",
            "longhaul_node_throttled_seconds": "throttled_s",
            "longhaul_node_memory_bytes": "memory_bytes",
        },
    ),
    "host": (
        _none,
        {
            "longhaul_host_cpu_idle_ratio": "cpu_idle_ratio",
            "longhaul_host_cpu_pressure_seconds": "cpu_pressure_s",
            "longhaul_host_softnet_processed_packets": "softnet_processed",
            "longhaul_host_softnet_dropped_packets": "softnet_dropped",
            "longhaul_host_softnet_squeezes": "softnet_squeezed",
            "longhaul_sampler_late_seconds": "sampler_late_s",
            "longhaul_collector_cpu_seconds": "collector_cpu_s",
            "longhaul_observer_cpu_seconds": "observer_cpu_s",
        },
    ),
}
"""By kind of event: its labels, and by metric what it tells as it is."""


def _step(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    yield "longhaul_train_steps", _rank(event), 1
    for phase, seconds in (event.get("phase_s") or {}).items():
        yield "longhaul_train_phase_seconds", (*_rank(event), ("phase", str(phase))), seconds


def _target(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    if event.get("metric_name"):
        yield "longhaul_run_metric_target_ratio", (("name", str(event["metric_name"])),), event.get("metric_target")


def _measurement(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    labels = (*_direction(event), ("stage", str(event["stage"])))
    yield "longhaul_link_measured_bytes_per_second", labels, _bytes_s(event)
    yield "longhaul_link_measured_rtt_seconds", labels, event.get("rtt_s")


def _asked_rate(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    yield "longhaul_link_asked_bytes_per_second", _direction(event), _bytes_s(event)  # as it stands, changed or not


def _asked_delay(event: dict[str, Any]) -> Iterator[tuple[str, Labels, float | None]]:
    if event.get("from") is not None:
        yield "longhaul_link_asked_delay_seconds", _direction(event), (event.get("after") or {}).get("delay_s")


def _bytes_s(event: dict[str, Any]) -> float | None:
    rate_bit_s = event.get("rate_bit_s")
    return None if rate_bit_s is None else rate_bit_s / 8


_WORKED_OUT: Mapping[str, Callable[[dict[str, Any]], Iterator[tuple[str, Labels, float | None]]]] = {
    "step": _step,
    "model": _target,
    "measurement": _measurement,
    "link": _asked_rate,
    "change": _asked_delay,
}
"""By kind of event: what comes of it beside what it tells."""


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
        for name, _, value in found:
            if not isinstance(value, int | float | None):  # a record may come from anywhere, and `float` reads texts
                raise TypeError(f"{name} is no number")
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
