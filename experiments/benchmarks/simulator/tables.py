"""The table of the simulator's errors, by the constants in the repository."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benchmarks.simulator.measure import ROLES, emulated
from experiments.common.tables import Found, disturbed, number, table
from testbed.analysis.simulator import calibration


def simulator(found: Sequence[Found]) -> str:
    """The table, by the constants in the repository."""
    constants = calibration.read(calibration.DEFAULT_FILE).constants

    def row(point: Found) -> list[str]:
        run, result = emulated(point), point["result"]
        error, (payload, wan) = run.error(constants), run.bytes_errors(constants)
        return [
            point["asked"]["run"] + disturbed(point),
            point["asked"]["role"],
            f"{run.step_s:.4f}",
            f"{run.step_s * (1 + error):.4f}",
            number(error, "+.1f", 100),
            number(payload, "+.2f", 100),
            number(wan, "+.2f", 100),
            f"{result['dilation']:g}",
            number(result["late_share"], ".1f", 100),
            result["verdict"],
        ]

    order = list(ROLES)
    rows = sorted(found, key=lambda point: (order.index(point["asked"]["role"]), point["asked"]["run"]))
    heads = ("run", "role", "emulated, s", "predicted, s", "error: %", "payload: %", "WAN bytes: %", "k", "late: %")
    return table((*heads, "verdict"), map(row, rows))
