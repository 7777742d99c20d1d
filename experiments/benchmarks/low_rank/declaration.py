"""Declares the benchmark `low_rank`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.low_rank import measure
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract
from experiments.common.weak_scaling import weak_scaling_table

BENCHMARK = Benchmark(
    measure,
    weak_scaling_table,
    order=280,
    page="docs/reproductions/pufferfish.md",
    extract=Extract(lambda _row: False),
)
