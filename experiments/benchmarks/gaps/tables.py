"""The table of gaps between releases, with Mininet-HiFi's figures on top."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, by, cores, disturbed, number, percent_off, table
from testbed.core.units import format_rate
from testbed.orchestrator.emulation.kernel import tc

HIFI = (
    ("100 Mbit/s", "packet", "Mininet-HiFi, 2012", "0.83", "3.33", "5.83", "0.18"),
    ("1 Gbit/s", "packet", "Mininet-HiFi, 2012", "8.3", "117", "11550", "41.4"),
)


def gaps(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        released = f"super-packet, {result['unit_bytes'] / 1000:.1f} kB"
        if asked["unit"] == "packet":
            released = "packet" if asked["rate_bit_s"] <= tc.MAX_PACKET_MODE_BIT_S else "packet (tried)"
        return [
            format_rate(asked["rate_bit_s"]),
            released,
            f"{asked['traffic']}; cores {cores(asked)}{disturbed(point)}",
            *(number(result[f"error_p{share}"], ".3g", 100) for share in (50, 90, 99)),
            number(result["over_10_percent"], ".2g", 100),
            percent_off(result["full_rate_bit_s"], asked["rate_bit_s"]),
            f"{result['burst_bytes'] / 1000:.0f}",
        ]

    heads = ("rate", "unit", "what", "p50 %", "p90 %", "p99 %", "> 10 % off: %", "rate: %", "burst, kB")
    ordered = sorted(points, key=by("rate_bit_s", "unit", "traffic", "busy", "awake"))
    return table(heads, [*([*row, "-", "-"] for row in HIFI), *map(row, ordered)])
