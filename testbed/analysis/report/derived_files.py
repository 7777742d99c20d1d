"""Derive from a run's record what other tools read: Parquet, OpenMetrics and the report."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

from testbed.analysis.record.record import Record
from testbed.analysis.record.samples import Series, series_of
from testbed.core.record.metrics import METRICS

# `samples.parquet`: every sample of a run, one a row.


def write_parquet(series: Series, path: Path) -> None:
    """Write (t_s DOUBLE, metric VARCHAR, labels MAP(VARCHAR, VARCHAR), value DOUBLE), ordered by all but the value."""
    keys = sorted(series.points)
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("CREATE TABLE series (id INTEGER, metric VARCHAR, labels VARCHAR)")
    for index, (name, labels) in enumerate(keys):
        row = [index, METRICS[name].series, json.dumps(dict(sorted(labels)))]
        connection.execute("INSERT INTO series VALUES (?, ?, ?)", row)
    lengths = [len(series.points[key]) for key in keys]
    columns = {
        "id": np.repeat(np.arange(len(keys), dtype=np.int32), lengths),
        "t_ms": np.fromiter((t_ms for key in keys for t_ms in series.points[key]), np.int64, sum(lengths)),
        "value": np.fromiter(
            (value for key in keys for value in series.points[key].values()), np.float64, sum(lengths)
        ),
    }
    # Values take part in no cast or arithmetic: what the record says is what the file holds.
    connection.register("samples", columns)
    target = str(path).replace("'", "''")
    connection.execute(
        "COPY (SELECT t_ms / 1000 AS t_s, metric, CAST(labels::JSON AS MAP(VARCHAR, VARCHAR)) AS labels, value"
        " FROM samples JOIN series USING (id) ORDER BY t_ms, id)"
        f" TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
    )
    connection.close()


def finish(record: Record) -> tuple[dict[str, int | None], list[str]]:
    """Write all three files; one that fails keeps none of the others from being written.

    Returns:
        How many samples and series there are, and how many samples the OpenMetrics text holds, with pauses filled; then
        one line for each thing that failed.
    """
    counts: dict[str, int | None] = {"samples": None, "series": None, "openmetrics_samples": None}
    faults: list[str] = []
    run = record.run
    series = functools.cache(lambda: series_of(record))

    # Each imports what it needs itself, so that a library that is missing costs one file only.
    def parquet(path: Path) -> None:

        counts["samples"], counts["series"] = series().count, len(series().points)
        faults.extend(series().faults)
        write_parquet(series(), path)

    def openmetrics(path: Path) -> None:
        from testbed.analysis.record.openmetrics import write_openmetrics

        counts["openmetrics_samples"] = write_openmetrics(record, series(), path)

    def report(path: Path) -> None:
        from testbed.analysis.report.run_page import run_report

        html, undrawn = run_report(record)
        path.write_text(html, encoding="utf-8")
        faults.extend(f"{run.report.name}: {fault}" for fault in undrawn)

    for path, write in ((run.samples, parquet), (run.openmetrics, openmetrics), (run.report, report)):
        faults += _attempt(path, write)
    return counts, faults


def _attempt(path: Path, write: Callable[[Path], None]) -> list[str]:
    """Write beside and rename: a reader meets neither half a file nor, after a failure, a stale one."""
    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        os.replace(part, path)
    except Exception as error:
        part.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        return [f"{path.name}: {type(error).__name__}: {error}"]
    return []
