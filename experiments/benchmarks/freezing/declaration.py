"""Declares the benchmark `freezing`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.freezing import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.freezing,
    order=320,
    page="docs/freezing.md",
    extract=Extract(
        lambda row: row["title"] == "tiny_vit" and "not pre-trained" not in row["policy, alpha"],
        heads=("policy, alpha", "accuracy, %", "against none, points", "gradient bytes less, %"),
    ),
)
