"""Runs side by side."""

from __future__ import annotations

from dashboards.panels import outcome, traffic, training
from dashboards.vocabulary.frame import Board, section


def board() -> Board:
    return Board(
        "longhaul-compare",
        "Compare",
        "Runs side by side: every run's first step begins at the left edge. Invalid runs are left out unless chosen.",
        (
            section("Runs", 8, (outcome.runs(),)),
            section("What was learnt", 10, (training.metric(), training.metric_over_bytes())),
            section(
                "How soon, and at what price",
                8,
                (outcome.to_target_bars(), outcome.to_accuracy_bars(), outcome.pareto()),
            ),
            section(
                "Bytes",
                8,
                (outcome.compression_bars(), outcome.effective_compression_bars(), outcome.wire_over_payload()),
            ),
            section(
                "Time",
                8,
                (
                    training.phases_by_run(),
                    training.step_time_bars(0.5, "median"),
                    training.step_time_bars(0.95, "95th percentile"),
                ),
                (training.overlap(), training.efficiency(), training.samples()),
                (traffic.throughput(), training.loss()),
            ),
        ),
        choose_verdict=True,
        choose_accuracy=True,
    )
