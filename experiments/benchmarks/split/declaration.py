"""Declares the benchmark `split`: where its tables go."""

from __future__ import annotations

from experiments.benchmarks.split import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

_CHANGES = ("ddp change: %", "dear change: %")
BENCHMARK = Benchmark(
    measure,
    tables.split,
    order=126,
    beside=("split_runs",),
    extract=Extract(
        lambda row: "switch" in row["title"] and max(abs(float(row[one])) for one in _CHANGES) >= 2,
        heads=("model", "device", "ddp / dear by FLOPs", "ddp / dear by timeline"),
    ),
)
