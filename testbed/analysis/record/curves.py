"""Curves over many runs: one query over their `samples.parquet`, and the events of those that have none.

The events of one run take seconds to read and the samples of hundreds take less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np

from testbed.analysis.record.record import Direction, Point, Record
from testbed.core.errors import BROKEN
from testbed.core.files import is_regular
from testbed.core.record.metrics import METRICS

_METRIC = METRICS["longhaul_train_metric_ratio"].series
_SENT = METRICS["longhaul_link_transmit_bytes"].series
_QUERY = """
    SELECT filename, metric, labels['name'], labels['link'], labels['source'], labels['target'], t_s, value
    FROM read_parquet(?, filename = true)
    WHERE isfinite(value) AND (metric = ? OR (metric = ? AND list_contains(?, labels['link'])))
    ORDER BY filename, t_s
"""
_GLOB_CHARACTERS = frozenset("*?[{")


@dataclass
class Curves:
    """Of one run."""

    metric: list[Point] = field(default_factory=list)
    sent: dict[Direction, list[Point]] = field(default_factory=lambda: defaultdict(list))
    """Bytes that had left each WAN direction since the first step."""
    fault: str | None = None

    def metric_over_wan_bytes(self) -> list[Point]:
        """The metric against bytes that had left all WAN links when it was taken, linear between two samples."""
        if not any(self.sent.values()) or not self.metric:
            return []
        total = self._wan_bytes([t_s for t_s, _ in self.metric])
        return [(x, y) for x, (_, y) in zip(total, self.metric, strict=True)]

    def wan_bytes_until(self, t_s: float) -> float | None:
        """That had left all WAN links since the first step; None where nothing was counted."""
        return self._wan_bytes([t_s])[0] if any(self.sent.values()) else None

    def _wan_bytes(self, times_s: Sequence[float]) -> list[float]:
        total = np.zeros(len(times_s))
        for points in self.sent.values():
            # Counting starts at 0 with the first step.
            t_s, sent = zip((0.0, 0.0), *points, strict=True)
            total += np.interp(np.array(times_s), t_s, sent)
        return [float(sent) for sent in total]


def curves_of(records: Sequence[Record]) -> list[Curves]:
    """One for each record, in their order."""
    # a name with a star would be a pattern to DuckDB, and a pipe would never end
    paths = {str(r.run.samples): r for r in records if is_regular(r.run.samples)}
    paths = {path: record for path, record in paths.items() if not _GLOB_CHARACTERS & set(path)}
    found, faults = _from_samples(paths)
    return [_of(record, found.get(str(record.run.samples)), faults.get(str(record.run.samples))) for record in records]


def _of(record: Record, found: Curves | None, fault: str | None) -> Curves:
    curves = from_events(record) if found is None else found
    curves.fault = fault or curves.fault
    return curves


def from_events(record: Record) -> Curves:
    try:
        return Curves(record.metric_points(), dict(record.wan_bytes()))
    except BROKEN as error:
        return Curves(fault=f"{record.run_id}: its events cannot be drawn: {type(error).__name__}: {error}")


def _from_samples(paths: dict[str, Record]) -> tuple[dict[str, Curves], dict[str, str]]:
    """Curves and faults by path. One damaged file fails a query over all, so then each is asked for itself."""
    if not paths:
        return {}, {}
    connection = _connection(paths)
    try:
        return _collected(_rows(connection, paths), paths), {}
    except duckdb.Error:
        pass
    found: dict[str, Curves] = {}
    faults: dict[str, str] = {}
    for path, record in paths.items():
        try:
            found |= _collected(_rows(connection, {path: record}), {path: record})
        except duckdb.Error as error:
            words = str(error).splitlines()[0] if str(error) else type(error).__name__
            faults[path] = f"{record.run_id}: samples.parquet cannot be read: {words}"
    return found, faults


def _connection(paths: Iterable[str]) -> Any:
    """Which reads these files and nothing else: no other path, no address, no extension from anywhere."""
    connection = duckdb.connect(config={"threads": 2, "autoinstall_known_extensions": False})
    connection.execute("SET allowed_paths = ?", [list(paths)])
    connection.execute("SET enable_external_access = false")
    return connection


def _rows(connection: Any, paths: dict[str, Record]) -> list[Any]:
    links = sorted({link.name for record in paths.values() if record.spec for link in record.spec.topology.wan_links})
    rows: list[Any] = connection.execute(_QUERY, [list(paths), _METRIC, _SENT, links]).fetchall()
    return rows


def _collected(rows: Iterable[Any], paths: dict[str, Record]) -> dict[str, Curves]:
    found = {path: Curves() for path in paths}
    wan = {path: _wan_links(record) for path, record in paths.items()}
    for path, metric, name, link, source, target, t_s, value in rows:
        if metric == _METRIC:
            if name == (_metric_name(paths[path]) or name):
                found[path].metric.append((t_s, value))
        elif link in wan[path]:
            found[path].sent[link, source, target].append((t_s, value))
    return found


def _wan_links(record: Record) -> set[str]:
    return {link.name for link in record.spec.topology.wan_links} if record.spec else set()


def _metric_name(record: Record) -> str | None:
    return ((record.summary or {}).get("metric") or {}).get("name")


# What it took a run to reach its target: seconds, and bytes over the WAN until then.


def reached(records: Sequence[Record]) -> list[dict[str, Any]]:
    """{"run_id", "time_to_target_s", "wan_bytes"} of each; null where it was not reached, or nothing was counted."""
    found = []
    for record, curves in zip(records, curves_of(records), strict=True):
        seconds = ((record.summary or {}).get("metric") or {}).get("time_to_target_s")
        sent = None if seconds is None else curves.wan_bytes_until(seconds)
        found.append({"run_id": record.run_id, "time_to_target_s": seconds, "wan_bytes": sent})
    return found
