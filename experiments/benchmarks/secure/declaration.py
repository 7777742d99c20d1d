"""Declares the benchmark `secure`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.secure import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.secure, order=310, page="docs/federated.md", extract=Extract(lambda _row: False))
