"""Declares the benchmark `set_up`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.set_up import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.set_up, order=60, extract=Extract(lambda _row: False))
