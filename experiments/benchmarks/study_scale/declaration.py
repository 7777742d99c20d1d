"""Declares the benchmark `study_scale`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.study_scale import measure, tables
from experiments.common.benchmark import Benchmark, Figure
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.study_scale,
    order=360,
    page="docs/studies/scale.md",
    figure=Figure("docs/figures/study-scale.svg", tables.draw),
    extract=Extract(lambda _row: False),  # the figure has them
)
