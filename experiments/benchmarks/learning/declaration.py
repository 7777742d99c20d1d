"""Declares the benchmark `learning`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.learning import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

SHOWN = ("none", "fp16", "int8", "topk", "powersgd", "sz3")
"""Compressors of the README's table."""

BENCHMARK = Benchmark(
    measure,
    tables.learning,
    order=180,
    page="docs/compressors.md",
    extract=Extract(
        lambda row: row["compressor"] in SHOWN,
        heads=("compressor", "accuracy, %", "against none, points", "within half a point", "dense / payload"),
    ),
)
