"""Declares the benchmark `accuracy`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.accuracy import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.accuracy,
    order=10,
    extract=Extract(
        lambda row: row["cores"] == "busy" and row["RTT"] in ("200 us", "67 ms", "300 ms"),
        heads=("rate", "RTT", "rate, queue filled: %", "TCP: %", "RTT error p50 / p99, ms", "target"),
    ),
)
