"""Declares the benchmark `study_scale`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.study_scale import measure, tables
from experiments.common.benchmark import Benchmark, Figure
from experiments.common.tables import Extract

_SHOWN = ("none", "none, hierarchical", "int8", "int8, hierarchical", "topk, hierarchical", "dear", "**fastest**")
BENCHMARK = Benchmark(
    measure,
    tables.study_scale,
    order=360,
    page="docs/studies/scale.md",
    figure=Figure("docs/figures/study-scale.svg", tables.draw),
    extract=Extract(
        lambda row: row["step, s"] in _SHOWN and row["title"] == "Links of 100 Mbit/s",
        heads=("step, s", "4 workers", "16 workers", "64 workers", "256 workers", "1000 workers"),
    ),
)
