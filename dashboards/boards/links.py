"""The links: what was asked for, what they were, what they carried."""

from __future__ import annotations

from dashboards.panels import traffic
from dashboards.vocabulary.frame import Board, section


def board() -> Board:
    return Board(
        "longhaul-links",
        "Links",
        "Targets of the links, measurements, and what they carried.",
        (
            section("Target and measured", 8, (traffic.asked_and_measured(),)),
            section(
                "Use",
                8,
                (traffic.use(), traffic.throughput()),
                (traffic.bytes_by_link(), traffic.wire_and_payload()),
            ),
            section(
                "Delay",
                8,
                (traffic.round_trip(), traffic.added_delay()),
                (traffic.queueing(), traffic.smoothed_round_trip()),
                (traffic.round_trip_bars(0.5, "median"), traffic.round_trip_bars(0.95, "95th percentile")),
            ),
            section("Loss", 8, (traffic.drops(), traffic.retransmissions())),
        ),
    )
