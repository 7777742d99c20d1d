"""Declares the benchmark `break_even`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.break_even import measure, tables
from experiments.common.benchmark import Benchmark, Figure
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.break_even,
    order=290,
    page="docs/parameter-server.md",
    figure=Figure("docs/figures/break-even.svg", tables.draw),
    extract=Extract(heads=("clients", "raw / SZ3", "verdicts")),
)
