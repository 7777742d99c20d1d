"""Declares the benchmark `second_order`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.second_order import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.second_order,
    order=250,
    page="docs/reproductions/pad-kfac.md",
    extract=Extract(lambda _row: False),
)
