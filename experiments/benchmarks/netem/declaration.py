"""Declares the benchmark `netem`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.netem import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.netem, order=50)
