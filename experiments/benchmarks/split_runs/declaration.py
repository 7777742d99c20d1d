"""Declares the benchmark `split_runs`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.split_runs import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.exposed, order=127)
