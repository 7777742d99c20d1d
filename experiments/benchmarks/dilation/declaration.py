"""Declares the benchmark `dilation`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.dilation import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.dilation, order=110, extract=Extract(lambda _row: False))
