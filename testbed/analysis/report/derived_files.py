"""Derive from a run's record what other tools read: Parquet, OpenMetrics and the report."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from typing import BinaryIO

import duckdb
import numpy as np

from testbed.analysis.record.record import Record
from testbed.analysis.record.samples import Series, series_of
from testbed.core.record.directory import Directory
from testbed.core.record.metrics import METRICS

# `samples.parquet`: every sample of a run, one a row.


def write_parquet(series: Series, file: BinaryIO) -> None:
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
    connection.execute(
        "COPY (SELECT t_ms / 1000 AS t_s, metric, CAST(labels::JSON AS MAP(VARCHAR, VARCHAR)) AS labels, value"
        " FROM samples JOIN series USING (id) ORDER BY t_ms, id)"
        # by the file's descriptor: a name could lead elsewhere by then
        f" TO '/proc/self/fd/{file.fileno()}' (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
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
    def parquet(file: BinaryIO) -> None:
        counts["samples"], counts["series"] = series().count, len(series().points)
        faults.extend(series().faults)
        write_parquet(series(), file)

    def openmetrics(file: BinaryIO) -> None:
        from testbed.analysis.record.openmetrics import write_openmetrics

        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        counts["openmetrics_samples"] = write_openmetrics(record, series(), text)
        text.detach()  # it is not the text's to close

    def report(file: BinaryIO) -> None:
        from testbed.analysis.report.run_page import run_report

        html, undrawn = run_report(record)
        file.write(html.encode())
        faults.extend(f"{run.report.name}: {fault}" for fault in undrawn)

    with Directory(run.path) as folder:
        for path, write in ((run.samples, parquet), (run.openmetrics, openmetrics), (run.report, report)):
            faults += _attempt(folder, path.name, write)
    return counts, faults


def _attempt(folder: Directory, name: str, write: Callable[[BinaryIO], None]) -> list[str]:
    """Write beside and rename: a reader meets neither half a file nor, after a failure, a stale one."""
    try:
        with folder.replaced(name) as file:
            write(file)
    except Exception as error:
        folder.remove(name)
        return [f"{name}: {type(error).__name__}: {error}"]
    return []
