"""Declares the benchmark `cost`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.cost import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.cost, order=80, extract=Extract(lambda _row: False))
