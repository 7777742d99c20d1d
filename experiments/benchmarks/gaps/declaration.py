"""Declares the benchmark `gaps`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.gaps import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.gaps, order=20)
