"""Declares the benchmark `simulator`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.simulator import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.simulator, order=160)
