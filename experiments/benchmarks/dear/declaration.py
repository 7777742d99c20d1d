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
    extract=Extract(
        heads=(
            "t_ar / t_bp",
            "rate",
            "dear, s",
            "overlapped, s",
            "bound",
            "overlapped / DeAR",
            "one bucket / DeAR",
            "verdicts",
        )
    ),
)
