"""Declares the benchmark `scaling`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.scaling import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.scaling,
    order=130,
    extract=Extract(
        lambda row: row["workers"].split(" ")[0] in ("4", "16", "64"),
        heads=("workers", "step, s", "exposed, s", "exposed / closed form", "verdict"),
    ),
)
