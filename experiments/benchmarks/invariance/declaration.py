"""Declares the benchmark `invariance`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.invariance import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.invariance, order=65, extract=Extract(lambda _row: False))
