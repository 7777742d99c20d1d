"""Declares the benchmark `truth`: where its tables go."""

from __future__ import annotations

from experiments.benchmarks.truth import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.truth_table,
    order=345,
    page="docs/studies/truth.md",
    beside=("real_wan",),
    extract=Extract(lambda row: row["title"] == "All of it"),
)
