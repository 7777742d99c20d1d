"""Declares the benchmark `split`: where its tables go."""

from __future__ import annotations

from experiments.benchmarks.split import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.split, order=126, beside=("split_runs",), extract=Extract(lambda _row: False))
