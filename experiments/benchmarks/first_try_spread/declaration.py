"""Declares the benchmark `first_try_spread`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.first_try_spread import measure, tables
from experiments.common.benchmark import Benchmark, Extract

BENCHMARK = Benchmark(measure, tables.first_try_spread, order=115, extract=Extract(lambda _row: False))
