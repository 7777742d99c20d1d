"""One run in depth."""

from __future__ import annotations

from dashboards.panels import machine, outcome, traffic, training
from dashboards.vocabulary.frame import Board, section


def board() -> Board:
    return Board(
        "longhaul-run",
        "Run",
        "One run in depth. Of the archive the x axis is elapsed time, in emulated seconds; live it is the wall clock, "
        "so that at a dilation of k figures per second are 1/k of the emulated ones.",
        (
            section(
                "Outcome",
                4,
                (outcome.verdicts(), outcome.reasons(), outcome.best(), outcome.to_target()),
                (outcome.duration(), outcome.steps(), outcome.crossed(), outcome.compression()),
            ),
            section(
                "Training",
                8,
                (training.metric(), training.loss()),
                (training.step_time(), training.samples()),
            ),
            section(
                "Where the time goes",
                8,
                (training.phases(), training.waiting()),
                (training.overlap(), training.efficiency(), training.stragglers()),
            ),
            section(
                "Bytes and links",
                8,
                (traffic.throughput(), traffic.wire_and_payload()),
                (traffic.compression(), traffic.round_trip(), traffic.queueing()),
            ),
            section("Machine", 8, (machine.idle(), machine.node_cores(), machine.memory())),
        ),
        single_run=True,
    )
