"""Declares the benchmark `gaps`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.gaps import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract, Row


def _is_of_runs(row: Row) -> bool:
    """Return whether a run releases such units."""
    return row["what"] == "tcp; cores busy" and "tried" not in row["unit"]


BENCHMARK = Benchmark(
    measure,
    tables.gaps,
    order=20,
    extract=Extract(
        lambda row: "Mininet" in row["what"] or (_is_of_runs(row) and row["rate"] in ("100 Mbit/s", "1 Gbit/s")),
        heads=("rate", "unit", "what", "p50 %", "p99 %", "> 10 % off: %"),
    ),
)
