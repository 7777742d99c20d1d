"""Declares the benchmark `split`: where its tables go."""

from __future__ import annotations

from experiments.benchmarks.split import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.split, order=126, beside=("split_runs",))
