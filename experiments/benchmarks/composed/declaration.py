"""Declares the benchmark `composed`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.composed import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure, tables.composed, order=300, page="docs/federated.md", extract=Extract(lambda _row: False)
)
