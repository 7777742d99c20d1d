"""Declares the benchmark `scaling`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.scaling import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.scaling, order=130)
