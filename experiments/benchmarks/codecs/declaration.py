"""Declares the benchmark `codecs`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.codecs import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.codecs, order=170, page="docs/compressors.md")
