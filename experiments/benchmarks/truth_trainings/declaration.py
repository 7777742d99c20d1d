"""Declares the benchmark `truth_trainings`: where its table goes."""

from __future__ import annotations

from experiments.benchmarks.truth_trainings import measure, tables
from experiments.common.benchmark import Benchmark

BENCHMARK = Benchmark(measure, tables.trainings, order=346, page="docs/studies/truth.md")
