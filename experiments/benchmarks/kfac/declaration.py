"""Declares the benchmark `kfac`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.kfac import measure, tables
from experiments.common.benchmark import Benchmark, Figure
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.kfac,
    order=240,
    page="docs/reproductions/pad-kfac.md",
    figure=Figure("docs/figures/kfac-rates.svg", tables.draw),
    extract=Extract(lambda _row: False),  # the figure has them
)
