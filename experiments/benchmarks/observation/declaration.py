"""Declares the benchmark `observation`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.observation import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.observation, order=100, extract=Extract(lambda _row: False))
