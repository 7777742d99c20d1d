"""Declares the benchmark `codecs`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.codecs import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

SHOWN = ("none", "fp16", "int8", "topk", "powersgd", "sz3")
"""Compressors of the README's table."""

BENCHMARK = Benchmark(
    measure,
    tables.codecs,
    order=170,
    page="docs/compressors.md",
    extract=Extract(
        lambda row: row["compressor"] in SHOWN,
        heads=("compressor", "bits an element", "relative error", "encode, GB/s", "decode, GB/s", "share of clone"),
    ),
)
