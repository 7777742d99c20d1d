"""Declares the benchmark `study_compressors`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.study_compressors import measure, tables
from experiments.common.benchmark import Benchmark, Figure

BENCHMARK = Benchmark(
    measure,
    tables.study_compressors,
    order=350,
    page="docs/studies/compressors.md",
    figure=Figure("docs/figures/study-compressors.svg", tables.draw),
)
