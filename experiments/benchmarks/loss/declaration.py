"""Declares the benchmark `loss`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.loss import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.loss, order=30, extract=Extract(lambda _row: False))
