"""Declares the benchmark `grace`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.grace import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.grace,
    order=260,
    page="docs/reproductions/grace.md",
    extract=Extract(lambda _row: False),
)
