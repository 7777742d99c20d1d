"""Declares the benchmark `monitor`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.monitor import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.monitor, order=90, extract=Extract(lambda _row: False))
