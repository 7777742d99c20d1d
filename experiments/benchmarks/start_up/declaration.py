"""Declares the benchmark `start_up`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.start_up import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.start_up, order=70)
