"""The table of plain Mininet, the same rates of an emulated link next to it."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, cores, disturbed, number, percent_off, table

_MIN_RTT_S = 0.0002
"""Of our points that stand for no delay."""
_SAID_CHARACTERS = 120


def mininet_tclink(points: Sequence[Found], beside: Sequence[Found]) -> str:
    """`beside`: the points of `accuracy`, of which those almost without a delay are ours at the same rates."""
    ours = {
        (point["asked"]["rate_bit_s"], point["asked"]["busy"]): point["result"]
        for point in beside
        if point["asked"]["rtt_s"] == _MIN_RTT_S
    }

    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        rate = asked["bw_mbit_s"] * 1e6
        own = None if asked["delay"] else ours.get((rate, asked["busy"]))
        return [
            f"{asked['bw_mbit_s']:g}",
            asked["delay"] or "none",
            cores(asked),
            percent_off(result["burst_rate_bit_s"], rate),
            percent_off(own["burst_rate_bit_s"] if own else None, rate),
            percent_off(result["flow_rate_bit_s"], rate),
            number(result["goodput_bit_s"], ".1f", 1e-6),
            number(result["rtt_p50_s"], ".3f", 1e3),
            ("; ".join(result["said"][:2]).replace("|", "/")[:_SAID_CHARACTERS] or "nothing") + disturbed(point),
        ]

    heads = (
        *("bw", "delay", "cores", "rate, queue filled: %", "ours at this rate: %", "TCP: %", "goodput, Mbit/s"),
        *("RTT, ms", "Mininet said"),
    )
    return table(heads, map(row, sorted(points, key=lambda p: (p["asked"]["bw_mbit_s"], p["asked"]["busy"]))))
