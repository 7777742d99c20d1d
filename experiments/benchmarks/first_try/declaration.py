"""Declares the benchmark `first_try`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.first_try import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.first_try, order=112, extract=Extract(lambda _row: False))
