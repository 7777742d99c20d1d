"""Declares the benchmark `collectives`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.collectives import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.collectives, order=150, extract=Extract(lambda _row: False))
