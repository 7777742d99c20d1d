"""Declares the benchmark `strategies`: where its table and short table go."""

from __future__ import annotations

from experiments.benchmarks.strategies import measure, tables
from experiments.common.benchmark import Benchmark, ShortTable
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.strategies,
    order=220,
    short=ShortTable("docs/strategies.md", tables.brief),
    extract=Extract(lambda _row: False),
)
