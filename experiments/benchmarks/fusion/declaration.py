"""Declares the benchmark `fusion`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.fusion import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.rules,
    order=210,
    page="docs/reproductions/dear.md",
    extract=Extract(lambda _row: False),
)
