"""Declares the benchmark `strategies`: where its table and short table go."""

from __future__ import annotations

from experiments.benchmarks.strategies import measure, tables
from experiments.common.benchmark import Benchmark, ShortTable

BENCHMARK = Benchmark(measure, tables.strategies, order=220, short=ShortTable("docs/strategies.md", tables.brief))
