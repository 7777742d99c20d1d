"""Declares the benchmark `timelines`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.timelines import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.timelines, order=125, extract=Extract(lambda _row: False))
