"""Queries that may have no answer, and what then must have none either: the reason is asked for, not assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.vocabulary import seeds
from dashboards.vocabulary.queries import ACCURACY, RANGE, RUN, best_metric, by, described, last, series, time_to_target


@dataclass(frozen=True)
class Excuse:
    """Why a query has no answer."""

    why: str
    evidence: str
    """An instant query; the excuse holds where it has no answer either."""
    exprs: frozenset[str] = frozenset()
    """The queries that it is for, or else those with `part` in them."""
    part: str = ""

    def is_for(self, expr: str) -> bool:
        return expr in self.exprs or bool(self.part and self.part in expr)


def _excuses() -> Iterator[Excuse]:
    for value in (time_to_target(), by("max", RUN, best_metric())):
        spread = frozenset((seeds.half_interval(value), seeds.deviation(value)))
        yield Excuse("no configuration ran with two seeds", f"{seeds.count(value)} > 1", spread)
    yield Excuse(
        "no run without compression reached its target, to be compared with",
        described(
            time_to_target('compressor="none"', scope=('topo=~"$topo"',)),
            seeds.BASE,
            'compressor="none"',
            seeds.BELIEVED,
            scope=('topo=~"$topo"',),
        ),
        frozenset((seeds.speed_up(),)),
    )
    target = "longhaul_run_time_to_target_seconds"
    yield Excuse("no run reached its target", last(target), part=target)
    reached = f"max_over_time({series('longhaul_train_metric_ratio', ACCURACY)}[{RANGE}]) >= $accuracy"
    yield Excuse("no run reached the accuracy chosen", reached, part="$accuracy")
    for name in ("longhaul_train_metric_ratio", "longhaul_run_metric_target_ratio", "longhaul_train_loss"):
        yield Excuse("workloads without arithmetic learn nothing", last(name), part=name)
    for name in _LATER:
        yield Excuse(f"these records are older than {name}", last(name), part=name)
    for name in _WAN:
        yield Excuse("none of these networks has a WAN link", last(name), part=name)


_WAN = ("longhaul_link_configured_rtt_seconds", "longhaul_link_asked_delay_seconds")
_LATER = (
    "longhaul_train_late_seconds",
    "longhaul_train_queued_seconds",
    "longhaul_host_softnet_dropped_packets",
    "longhaul_host_softnet_processed_packets",
    "longhaul_host_softnet_squeezes",
    "longhaul_collector_cpu_seconds",
    "longhaul_observer_cpu_seconds",
)
"""What the first records do not have."""
EXCUSES = tuple(_excuses())
