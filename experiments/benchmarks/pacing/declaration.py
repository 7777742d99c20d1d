"""Declares the benchmark `pacing`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.pacing import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.pacing, order=120, extract=Extract(lambda _row: False))
