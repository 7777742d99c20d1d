"""Declares the benchmark `first_try_scan`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.first_try_scan import measure, tables
from experiments.common.benchmark import Benchmark, Extract

BENCHMARK = Benchmark(measure, tables.first_try_scan, order=114, extract=Extract(lambda _row: False))
