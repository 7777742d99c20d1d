"""Declares the benchmark `observation`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.observation import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.observation, order=100)
