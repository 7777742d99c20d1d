"""Declares the benchmark `split_runs`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.split_runs import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.exposed, order=127, extract=Extract(lambda _row: False))
