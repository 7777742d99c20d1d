"""Declares the benchmark `strategies`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.strategies import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.strategies,
    order=220,
    extract=Extract(lambda _row: False),
)
