"""Declares the benchmark `start_up`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.start_up import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.start_up, order=70, extract=Extract(lambda _row: False))
