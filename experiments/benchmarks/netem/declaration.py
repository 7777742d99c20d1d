"""Declares the benchmark `netem`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.netem import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.netem, order=50, extract=Extract(lambda _row: False))
