"""Declares the benchmark `gaps`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.gaps import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.gaps,
    order=20,
    extract=Extract(
        lambda row: "Mininet" in row["what"] or (row["what"] == "tcp; cores busy" and "tried" not in row["unit"]),
        heads=("rate", "unit", "what", "p50 %", "p90 %", "p99 %", "> 10 % off: %"),
    ),
)
