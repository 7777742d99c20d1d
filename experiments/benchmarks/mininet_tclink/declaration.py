"""Declares the benchmark `mininet_tclink`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.mininet_tclink import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure, tables.mininet_tclink, order=40, beside=("accuracy",), extract=Extract(lambda _row: False)
)
