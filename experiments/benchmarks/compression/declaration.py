"""Declares the benchmark `compression`: where its table, short table and figure go."""

from __future__ import annotations

from experiments.benchmarks.compression import measure, tables
from experiments.common.benchmark import Benchmark, Figure, ShortTable
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.compression,
    order=190,
    page="docs/compressors.md",
    figure=Figure("docs/figures/wan100m-compressors.svg", tables.draw),
    short=ShortTable("README.md", tables.brief),
    extract=Extract(lambda _row: False),
)
