"""Declares the benchmark `accuracy`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.accuracy import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.accuracy, order=10)
