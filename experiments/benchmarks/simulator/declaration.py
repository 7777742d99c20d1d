"""Declares the benchmark `simulator`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.simulator import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.simulator, order=160, extract=Extract(lambda _row: False))
