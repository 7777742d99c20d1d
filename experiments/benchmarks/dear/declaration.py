"""Declares the benchmark `dear`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.dear import measure, tables
from experiments.common.benchmark import Benchmark, Figure
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.bell,
    order=200,
    page="docs/reproductions/dear.md",
    figure=Figure("docs/figures/dear-bell.svg", tables.draw),
    extract=Extract(lambda _row: False),  # the figure has them
)
