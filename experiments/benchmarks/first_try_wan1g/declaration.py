"""Declares the benchmark `first_try_wan1g`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.first_try_wan1g import measure, tables
from experiments.common.benchmark import Benchmark, Extract

BENCHMARK = Benchmark(measure, tables.first_try_wan1g, order=116, extract=Extract(lambda _row: False))
