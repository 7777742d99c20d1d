from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.common.tables import Found, by, cores, disturbed, number, percent_off, table
from testbed.core.units import format_rate, format_time
from testbed.orchestrator.emulation.kernel import tc

RATE_TOLERANCE = 0.01
RTT_TOLERANCE, LEAST_RTT_TOLERANCE_S = 0.01, 0.5e-3
BUSY_P99_TOLERANCE_S = 1e-3
MOST_GOODPUT_SHARE, GOODPUT_TOLERANCE = 1448 / 1514, 0.005
"""Of the rate, in full segments. A flow that still fills holes hands over more: what waited behind them."""
BULK_TOLERANCE, ALL_REDUCE_TOLERANCE = 0.03, 0.05
HIFI = (
    ("100 Mbit/s", "packet", "Mininet-HiFi, 2012", "0.83", "3.33", "5.83", "0.18"),
    ("1 Gbit/s", "packet", "Mininet-HiFi, 2012", "8.3", "117", "11550", "41.4"),
)


def accuracy_faults(point: Found) -> list[str]:
    """What of a point is outside its target."""
    asked, result = point["asked"], point["result"]
    faults = []
    rate = result["burst_rate_bit_s"]
    if rate is None or abs(rate / asked["rate_bit_s"] - 1) > RATE_TOLERANCE:
        faults.append("rate")
    if not result["probes"]:
        return [*faults, "no probe"]
    if abs(result["rtt_p50_s"] - asked["rtt_s"]) > max(RTT_TOLERANCE * asked["rtt_s"], LEAST_RTT_TOLERANCE_S):
        faults.append("median RTT")
    if asked["busy"] and abs(result["rtt_p99_s"] - asked["rtt_s"]) > BUSY_P99_TOLERANCE_S:
        faults.append("p99 RTT")
    return faults


def in_target_range(asked: Found) -> bool:
    return bool(asked["rate_bit_s"] <= 500e6 or asked["rtt_s"] <= 0.067)


def is_steady(point: Found) -> bool:
    """A goodput beyond what the rate allows is no figure of the link's."""
    goodput = point["result"]["goodput_bit_s"]
    most = MOST_GOODPUT_SHARE * (1 + GOODPUT_TOLERANCE) * point["asked"]["rate_bit_s"]
    return goodput is not None and bool(goodput <= most)


def _accuracy(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        rate, rtt = asked["rate_bit_s"], asked["rtt_s"]
        ms = [
            number(None if result[key] is None else result[key] - base, "+.3f", 1e3)
            for key, base in (
                ("rtt_p50_s", rtt),
                ("rtt_p99_s", rtt),
                ("forward_p50_s", rtt / 2),
                ("forward_p99_s", rtt / 2),
                ("backward_p50_s", rtt / 2),
                ("backward_p99_s", rtt / 2),
            )
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


def _gaps(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        released = f"super-packet, {result['unit_bytes'] / 1000:.1f} kB"
        if asked["unit"] == "packet":
            released = "packet" if asked["rate_bit_s"] <= tc.PACKET_MODE_MOST_BIT_S else "packet (tried)"
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


def _loss(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        burst = asked.get("loss_burst_packets")
        lost, sent = result["sent"] - result["arrived"], result["sent"]
        deviations = abs(lost / sent - result["asked_ratio"]) / result["deviation_ratio"]
        return [
            f"{result['asked_ratio'] * 100:g} %" + (f", bursts of {burst:g}" if burst else ""),
            str(sent),
            str(lost),
            f"{lost / sent * 100:.3f} %",
            str(result["shaper_drops"]),
            number(result["mean_lost_run_packets"]),
            f"{deviations:.1f}" + disturbed(point),
            f"{result['queue_drops']} / {result['shaper_queue_drops']}",
        ]

    heads = (
        *("asked", "sent", "did not arrive", "share", "dropped by the shaper", "lost in a row, mean"),
        *("standard deviations off", "dropped elsewhere: queue / shaper's room"),
    )
    return table(heads, map(row, points))


def _dilation(points: Sequence[Found]) -> str:
    """Medians of the warm calls of all repeats together; "each" is the median of one repeat."""
    results: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for point in points:
        results.setdefault(by("what", "congestion", "k")(point), []).append(point["result"])
    medians = {key: statistics.median(s for one in found for s in one["warm_s"]) for key, found in results.items()}
    rows = []
    for (what, congestion, k), found in sorted(results.items()):
        base = medians.get((what, congestion, 1))
        off = medians[what, congestion, k] / base - 1 if base else None
        tolerance = BULK_TOLERANCE if what == "bulk" else ALL_REDUCE_TOLERANCE
        has_target = congestion == "reno" and 1 < k <= 4
        rows.append(
            [
                "20 MB to the last byte" if what == "bulk" else "all-reduce of 10 MB, 4 ranks",
                congestion,
                f"{k:g}",
                number(statistics.median(one["first_s"] for one in found), ".3f"),
                " ".join(f"{statistics.median(one['warm_s']):.3f}" for one in found),
                number(medians[what, congestion, k], ".3f"),
                number(off, "+.1f", 100),
                ("inside" if off is not None and abs(off) <= tolerance else "outside") if has_target else "reported",
            ]
        )
    heads = ("transfer", "tcp", "k", "first, s", "each repeat, s", "median, s", "against k=1: %", "target")
    return table(heads, rows)
