"""Declares the benchmark `real_wan`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.real_wan import measure, tables
from experiments.common.benchmark import Benchmark, Figure
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.real_wan_table,
    order=340,
    page="docs/studies/real-wan.md",
    figure=Figure("docs/figures/study-real-wan.svg", tables.draw),
    extract=Extract(lambda _row: False),
)
