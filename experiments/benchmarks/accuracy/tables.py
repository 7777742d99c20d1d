"""The table of links' accuracy, and whether each point is inside its target."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, by, cores, disturbed, number, percent_off, table
from testbed.core.units import format_rate, format_time

RATE_TOLERANCE = 0.01
RTT_TOLERANCE, MIN_RTT_TOLERANCE_S = 0.01, 0.5e-3
BUSY_P99_TOLERANCE_S = 1e-3
MAX_GOODPUT_SHARE, GOODPUT_TOLERANCE = 1448 / 1514, 0.005
"""Highest goodput as a share of the rate, in full segments. A flow that still fills holes hands over more at once."""


def accuracy_faults(point: Found) -> list[str]:
    """Return the figures of a point that miss their target, by name."""
    asked, result = point["asked"], point["result"]
    faults = []
    rate = result["burst_rate_bit_s"]
    if rate is None or abs(rate / asked["rate_bit_s"] - 1) > RATE_TOLERANCE:
        faults.append("rate")
    if not result["probes"]:
        return [*faults, "no probe"]
    if abs(result["rtt_p50_s"] - asked["rtt_s"]) > max(RTT_TOLERANCE * asked["rtt_s"], MIN_RTT_TOLERANCE_S):
        faults.append("median RTT")
    if asked["busy"] and abs(result["rtt_p99_s"] - asked["rtt_s"]) > BUSY_P99_TOLERANCE_S:
        faults.append("p99 RTT")
    return faults


def in_target_range(asked: Found) -> bool:
    return bool(asked["rate_bit_s"] <= 500e6 or asked["rtt_s"] <= 0.067)


def is_steady(point: Found) -> bool:
    """A goodput beyond what the rate allows is no figure of the link's."""
    goodput = point["result"]["goodput_bit_s"]
    most = MAX_GOODPUT_SHARE * (1 + GOODPUT_TOLERANCE) * point["asked"]["rate_bit_s"]
    return goodput is not None and bool(goodput <= most)


def accuracy(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        rate, rtt = asked["rate_bit_s"], asked["rtt_s"]
        ms = [
            number(None if result[key] is None else result[key] - base, "+.3f", 1e3)
            for way, base in (("rtt", rtt), ("forward", rtt / 2), ("backward", rtt / 2))
            for key in (f"{way}_p50_s", f"{way}_p99_s")
        ]
        tcp = ["not steady"] * 3
        if is_steady(point):
            tcp = [
                percent_off(result["flow_rate_bit_s"], rate),
                number(result["flow_full_share"], ".0f", 100),
                number(result["goodput_bit_s"], ".1f", 1e-6),
            ]
        faults = accuracy_faults(point)
        verdict = f"outside: {', '.join(faults)}" if faults else "inside"
        if not in_target_range(asked):
            verdict += " (no target)"
        return [
            format_rate(rate),
            format_time(rtt),
            cores(asked),
            percent_off(result["burst_rate_bit_s"], rate),
            *tcp,
            f"{ms[0]} / {ms[1]}",
            f"{ms[2]} / {ms[3]}",
            f"{ms[4]} / {ms[5]}",
            verdict + disturbed(point),
        ]

    heads = (
        *("rate", "RTT", "cores", "rate, queue filled: %", "TCP: %", "queue not empty: % of the time"),
        *("goodput, Mbit/s", "RTT error p50 / p99, ms", "forward p50 / p99, ms", "backward p50 / p99, ms", "target"),
    )
    return table(heads, map(row, sorted(points, key=by("rate_bit_s", "rtt_s", "busy"))))
