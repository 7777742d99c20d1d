"""Declares the benchmark `scaling`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.scaling import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.scaling,
    order=130,
    extract=Extract(heads=("workers", "step, s", "exposed, s", "closed form, s", "exposed / closed form", "verdict")),
)
