"""Declares the benchmark `run_dilation`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.run_dilation import measure, tables
from experiments.common.benchmark import Benchmark
from experiments.common.tables import Extract

BENCHMARK = Benchmark(measure, tables.run_dilation, order=140, extract=Extract(lambda _row: False))
