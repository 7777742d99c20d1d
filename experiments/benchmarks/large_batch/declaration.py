"""Declares the benchmark `large_batch`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.large_batch import measure
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract
from experiments.common.weak_scaling import weak_scaling_table

BENCHMARK = Benchmark(
    measure,
    weak_scaling_table,
    order=270,
    page="docs/reproductions/slamb.md",
    extract=Extract(lambda _row: False),
)
