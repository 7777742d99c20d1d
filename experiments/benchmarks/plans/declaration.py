"""Declares the benchmark `plans`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.plans import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.plans,
    order=330,
    page="docs/plans.md",
    extract=Extract(
        lambda row: "plan" not in row and "schedule" in row,
        heads=("schedule", "plans", "median error", "worst", "AMP's: median", "worst (2)"),
    ),
)
