"""Every metric: the live exporter and the archived record both read this table.

Prometheus conventions: prefix `longhaul_`, base units, `_total` on counters, bytes rather than bits. Times of samples
are emulated seconds. Labels stay few: never a step or a tensor's name, and a seed in `longhaul_run_info` alone.
"""

from __future__ import annotations

from dataclasses import dataclass

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
            "1; labels describe the run. parameters: of the compressor. setting: shared by runs that differ only in "
            "compressor and seed, by the same code.",
            (
                *("kind", "workload", "strategy", "parameters", "workers", "device", "seed", "dilation", "setting"),
                "verdict",
            ),
        ),
        _M("longhaul_run_dilation_ratio", "gauge", "Time dilation factor: wall-clock over emulated time."),
        _M("longhaul_run_start_timestamp_seconds", "gauge", "Unix time at which the run's first step began."),
        _M(
            "longhaul_verdict",
            "gauge",
            "1 for the provisional verdict, 0 for the others; archived: the final one, at the run's end.",
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
        _M(
            "longhaul_train_cpu_seconds",
            "counter",
            "CPU seconds of the rank's training thread, and its accelerator's after it.",
            ("rank",),
        ),
        _M(
            "longhaul_train_late_seconds",
            "counter",
            "Emulated seconds by which the rank sent later than its device would.",
            ("rank",),
        ),
        _M(
            "longhaul_train_queued_seconds",
            "counter",
            "Emulated seconds in which the rank's messages waited for a core.",
            ("rank",),
        ),
        _M("longhaul_train_metric_ratio", "gauge", "Last value of the workload's metric.", ("name",)),
        _M(
            "longhaul_run_metric_target_ratio",
            "gauge",
            "Value of the workload's metric that counts as reached.",
            ("name",),
        ),
        _M(
            "longhaul_run_time_to_target_seconds",
            "gauge",
            "Emulated seconds from the first step until the metric's target was reached; archived if it was.",
            ("name",),
        ),
        _M(
            "longhaul_dense_bytes_per_step",
            "gauge",
            "What all ranks would send in a step of uncompressed data parallel.",
        ),
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
            "longhaul_link_asked_bytes_per_second",
            "gauge",
            "Target rate of a link at that moment, after changes.",
            _LINK,
        ),
        _M(
            "longhaul_link_asked_delay_seconds",
            "gauge",
            "Target one-way delay of a WAN link at that moment, after changes.",
            _LINK,
        ),
        _M(
            "longhaul_link_configured_bytes_per_second",
            "gauge",
            "Target rate of a link at the beginning, Ethernet header included.",
            _LINK,
        ),
        _M(
            "longhaul_link_configured_rtt_seconds",
            "gauge",
            "Target round trip of a WAN link at the beginning, without queueing.",
            ("link",),
        ),
        _M(
            "longhaul_link_measured_bytes_per_second",
            "gauge",
            "Rate measured by a burst before training: idle, or busy during the workers' warm-up.",
            (*_LINK, "stage"),
        ),
        _M(
            "longhaul_link_measured_rtt_seconds",
            "gauge",
            "Round trip measured by probes before training: idle, or busy during the workers' warm-up.",
            (*_LINK, "stage"),
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
            "99th percentile of how late packets left the delay shaper.",
            _LINK,
        ),
        _M(
            "longhaul_delay_line_dropped_packets",
            "counter",
            "Packets lost because the delay shaper was full.",
            _LINK,
        ),
        _M("longhaul_tcp_smoothed_rtt_seconds", "gauge", "Largest smoothed RTT of a node's connections.", ("node",)),
        _M("longhaul_tcp_min_rtt_seconds", "gauge", "Largest minimum RTT of a node's connections.", ("node",)),
        _M("longhaul_tcp_retransmitted_segments", "counter", "Segments a node sent again.", ("node",)),
        _M("longhaul_node_cpu_seconds", "counter", "CPU seconds of a node's container.", ("node",)),
        _M(
            "longhaul_node_throttled_seconds",
            "counter",
            "Seconds a node's container was throttled by its quota.",
            ("node",),
        ),
        _M("longhaul_node_memory_bytes", "gauge", "Memory charged to a node's container.", ("node",)),
        _M("longhaul_host_cpu_idle_ratio", "gauge", "Idle share of all cores over the last interval."),
        _M("longhaul_host_cpu_pressure_seconds", "counter", "Seconds in which some task waited for a core."),
        _M(
            "longhaul_host_softnet_processed_packets",
            "counter",
            "Packets that the machine's CPUs received, including other runs'.",
        ),
        _M(
            "longhaul_host_softnet_dropped_packets",
            "counter",
            "Packets dropped by a full CPU backlog, including other runs'.",
        ),
        _M(
            "longhaul_host_softnet_squeezes",
            "counter",
            "Receive rounds of a CPU that ended with packets left over (time_squeeze).",
        ),
        _M("longhaul_sampler_late_seconds", "gauge", "How late the collector took its last sample."),
        _M("longhaul_collector_cpu_seconds", "counter", "CPU seconds of the collector, which takes a sample a second."),
        _M(
            "longhaul_observer_cpu_seconds",
            "counter",
            "CPU seconds of the process that observes the run: collector, record, metrics, display.",
        ),
    )
}

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
    "longhaul_collector_cpu_seconds",
    "longhaul_observer_cpu_seconds",
}
"""Counters that are 0 when the first step begins, so that a record may say so; of others the value there is unknown."""


def run_labels(run_id: str, topo: str, compressor: str) -> Labels:
    """The labels that every series bears: one exporter serves run after run, and dashboards choose by them."""
    return (("run", run_id), ("topo", topo), ("compressor", compressor))
