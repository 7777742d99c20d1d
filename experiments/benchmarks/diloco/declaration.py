"""Declares the benchmark `diloco`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.diloco import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.diloco,
    order=230,
    page="docs/reproductions/diloco.md",
    extract=Extract(lambda _row: False),
)
