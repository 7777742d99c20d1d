"""Declares the benchmark `second_order`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.second_order import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.second_order, order=250, page="docs/reproductions/pad-kfac.md")
