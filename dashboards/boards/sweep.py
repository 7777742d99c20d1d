"""Many runs as groups."""

from __future__ import annotations

from dashboards.panels import outcome, sweep
from dashboards.vocabulary.frame import Board, section


def board() -> Board:
    return Board(
        "longhaul-sweep",
        "Sweep",
        "What each compressor gains, over seeds. Invalid runs are left out unless chosen.",
        (
            section("Groups", 10, (sweep.over_seeds(),)),
            section("Gain", 10, (sweep.speed_up(), outcome.pareto())),
            section("Runs", 12, (outcome.runs(),)),
        ),
        choose_verdict=True,
    )
