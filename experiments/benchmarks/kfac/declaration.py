"""Declares the benchmark `kfac`: where its table and figure go."""

from __future__ import annotations

from experiments.benchmarks.kfac import measure, tables
from experiments.common.benchmark import Benchmark, Figure
from experiments.common.tables import Extract

BENCHMARK = Benchmark(
    measure,
    tables.kfac,
    order=240,
    page="docs/reproductions/pad-kfac.md",
    figure=Figure("docs/figures/kfac-rates.svg", tables.draw),
    extract=Extract(
        lambda row: "k" in row or row["Gbit/s"] == "10",
        heads=(
            "model",
            "Gbit/s",
            "D-KFAC, s",
            "MPD-KFAC, s",
            "SPD-KFAC, s",
            "PAD-KFAC, s",
            "PAD-KFAC, gradients, s",
            "SPD / PAD, gradients",
        ),
    ),
)
