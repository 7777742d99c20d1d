"""Declares the benchmark `study_compressors`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.study_compressors import measure, tables
from experiments.common.benchmark import Benchmark, Figure
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.study_compressors,
    order=350,
    page="docs/studies/compressors.md",
    figure=Figure("docs/figures/study-compressors.svg", tables.draw),
    extract=Extract(
        lambda row: "as fast as a core" in row["title"] and row["title"].startswith("two_regions, codecs as")
    ),
)
