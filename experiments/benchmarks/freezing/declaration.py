"""Declares the benchmark `freezing`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.freezing import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.freezing, order=320, page="docs/freezing.md")
