"""Whether the numbers may be believed, and why not."""

from __future__ import annotations

from dashboards.panels import machine, outcome
from dashboards.vocabulary.frame import Board, section


def board() -> Board:
    return Board(
        "longhaul-fidelity",
        "Fidelity",
        "Whether the emulation was faithful: limits are the verdict's own.",
        (
            section("Verdict", 6, (outcome.verdicts(),), (machine.checks(),)),
            section(
                "Cores",
                8,
                (machine.shortage(),),
                (machine.idle(), machine.pressure(), machine.throttled()),
            ),
            section(
                "Clocks",
                8,
                (machine.late_phases(), machine.queued_messages()),
                (machine.late_packets(), machine.late_sampler()),
            ),
            section("Packets", 8, (machine.lost_packets(), machine.squeezes())),
            section("Observation", 8, (machine.observation(),)),
        ),
    )
