"""Derive from a run's record what other tools read: Parquet, OpenMetrics and the report."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

from testbed.analysis.load import Record
from testbed.analysis.samples import series_of


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
        from testbed.analysis.parquet import write_parquet

        counts["samples"], counts["series"] = series().count, len(series().points)
        faults.extend(series().faults)
        write_parquet(series(), path)

    def openmetrics(path: Path) -> None:
        from testbed.analysis.openmetrics import write_openmetrics

        counts["openmetrics_samples"] = write_openmetrics(record, series(), path)

    def report(path: Path) -> None:
        from testbed.analysis.report import run_report

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
