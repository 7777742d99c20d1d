"""A run's events as time series."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.analysis.record.identity import code_of, kind_of
from testbed.analysis.record.record import Record
from testbed.core.errors import BROKEN
from testbed.core.record.metric_samples import About, Totals, constant_samples, verdict_samples
from testbed.core.record.metrics import FIRST_STEP_COUNTERS, METRICS, Labels

Key = tuple[str, Labels]
"""(metric name, labels)."""

MAX_SERIES = 100_000
"""Bound for one run. A thousand links and ranks have some ten thousand."""


@dataclass
class Series:
    """Time series of a run, each in order of time with no two values in one millisecond."""

    points: dict[Key, dict[int, float]] = field(default_factory=dict)
    """By metric and labels: value by milliseconds since step 1 began."""
    end_ms: int = 0
    faults: list[str] = field(default_factory=list)
    """One line for events that could not be read."""

    @property
    def count(self) -> int:
        return sum(len(points) for points in self.points.values())


def series_of(record: Record) -> Series:
    """Fold the events in order of time.

    A counter has no sample before the first step, and one of 0 at its beginning if that is where it counts from. Of two
    values in one millisecond the later line of the record stays, since Prometheus would keep either.
    """
    series = Series()
    totals = Totals()
    broken = 0
    for event in record.events:
        t_ms = round(event["t_s"] * 1000)
        series.end_ms = max(series.end_ms, t_ms)
        try:
            changed = totals.add(event)
        except BROKEN:
            broken += 1
            continue
        if len(series.points) > MAX_SERIES:
            raise ValueError(f"its events name more than {MAX_SERIES} series, more than any run has")
        for name, labels, value in changed:
            is_counter = METRICS[name].kind == "counter"
            if is_counter and t_ms < 0:
                continue
            points = series.points.setdefault((name, labels), {})
            if is_counter and not points and name in FIRST_STEP_COUNTERS:
                points[0] = 0.0
            points[t_ms] = float(value)
    _add_constants(record, series)
    _add_end(record, series)
    if record.time_fault is not None:
        series.faults.append(record.time_fault)
    if broken:
        series.faults.append(f"events.jsonl: {broken} events lack a field or hold a value of the wrong type; left out")
    return series


def _add_constants(record: Record, series: Series) -> None:
    if record.spec is None:
        return
    verdict = str((record.summary or {}).get("verdict") or "unknown")
    about = About(kind_of(record), verdict, code_of(record), record.start_unix_s)
    for name, labels, value in constant_samples(record.spec, about):
        # what is known of a later moment stays
        series.points[name, labels] = {0: value, **series.points.get((name, labels), {})}


def _add_end(record: Record, series: Series) -> None:
    """The verdict as it was passed, of whose changes the record says nothing, and when the target was reached."""
    summary = record.summary or {}
    if summary.get("verdict"):
        for name, labels, value in verdict_samples(summary["verdict"], len(summary.get("reasons") or ())):
            series.points[name, labels] = {series.end_ms: value}
    metric = summary.get("metric") or {}
    if metric.get("name") and metric.get("time_to_target_s") is not None:
        labels = (("name", str(metric["name"])),)
        series.points["longhaul_run_time_to_target_seconds", labels] = {
            series.end_ms: float(metric["time_to_target_s"])
        }
