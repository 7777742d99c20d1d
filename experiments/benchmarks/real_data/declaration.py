"""Declares the benchmark `real_data`: where its tables go."""

from __future__ import annotations

from experiments.benchmarks.real_data import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.real_data, order=185, page="docs/accuracy.md")
