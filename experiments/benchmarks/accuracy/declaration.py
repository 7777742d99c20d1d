"""Declares the benchmark `accuracy`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.accuracy import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

_SHOWN = (("100 Mbit/s", "67 ms"), ("1 Gbit/s", "67 ms"), ("1 Gbit/s", "300 ms"))
BENCHMARK = Benchmark(
    measure,
    tables.accuracy,
    order=10,
    extract=Extract(
        lambda row: row["cores"] == "busy" and (row["rate"], row["RTT"]) in _SHOWN,
        heads=("rate", "RTT", "rate, queue filled: %", "TCP: %", "RTT error p50 / p99, ms", "target"),
    ),
)
