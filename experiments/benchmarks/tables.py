"""Tables of the measured points, as Markdown, and whether each point is inside its target."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from testbed.core.units import format_rate, format_time

Found = dict[str, Any]
"""A point as it lies in the JSON file."""
RATE_TOLERANCE = 0.01
RTT_TOLERANCE, LEAST_RTT_TOLERANCE_S = 0.01, 0.5e-3
BUSY_P99_TOLERANCE_S = 1e-3
NODES_64_UP_S, NODES_64_DOWN_S, TIMES_MININET = 4.0, 3.0, 5.0
BULK_TOLERANCE, ALL_REDUCE_TOLERANCE = 0.03, 0.05
HIFI = (
    ("100 Mbit/s", "packet", "Mininet-HiFi, 2012", "0.83", "3.33", "5.83", "0.18"),
    ("1 Gbit/s", "packet", "Mininet-HiFi, 2012", "8.3", "117", "11550", "41.4"),
)


def of(name: str, points: Sequence[Found]) -> str:
    return _TABLES[name](points)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _number(value: float | None, form: str = ".2f", scale: float = 1.0) -> str:
    return "-" if value is None else format(value * scale, form)


def _percent_off(value: float | None, asked: float) -> str:
    return "-" if value is None else f"{(value / asked - 1) * 100:+.2f}"


def _disturbed(point: Found) -> str:
    return f" (others used {point['others_cores']:.1f} cores)" if point["is_disturbed"] else ""


def _cores(asked: Found) -> str:
    return "busy" if asked["busy"] else "kept awake" if asked.get("awake") else "idle"


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


def _accuracy(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        rate, rtt = asked["rate_bit_s"], asked["rtt_s"]
        ms = [
            _number(None if result[key] is None else result[key] - base, "+.3f", 1e3)
            for key, base in (
                ("rtt_p50_s", rtt),
                ("rtt_p99_s", rtt),
                ("forward_p50_s", rtt / 2),
                ("forward_p99_s", rtt / 2),
                ("backward_p50_s", rtt / 2),
                ("backward_p99_s", rtt / 2),
            )
        ]
        faults = accuracy_faults(point)
        verdict = f"outside: {', '.join(faults)}" if faults else "inside"
        if not in_target_range(asked):
            verdict += " (no target)"
        return [
            format_rate(rate),
            format_time(rtt),
            _cores(asked),
            _percent_off(result["burst_rate_bit_s"], rate),
            _percent_off(result["flow_rate_bit_s"], rate),
            _number(result["flow_full_share"], ".0f", 100),
            _number(result["goodput_bit_s"], ".1f", 1e-6),
            f"{ms[0]} / {ms[1]}",
            f"{ms[2]} / {ms[3]}",
            f"{ms[4]} / {ms[5]}",
            verdict + _disturbed(point),
        ]

    heads = (
        *("rate", "RTT", "cores", "rate, queue filled: %", "TCP: %", "queue not empty: % of the time"),
        *("goodput, Mbit/s", "RTT error p50 / p99, ms", "forward p50 / p99, ms", "backward p50 / p99, ms", "target"),
    )
    return _table(heads, map(row, sorted(points, key=_by("rate_bit_s", "rtt_s", "busy"))))


def _by(*keys: str) -> Callable[[Found], tuple[Any, ...]]:
    return lambda point: tuple(point["asked"][key] for key in keys)


def _gaps(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        unit = result["unit_bytes"]
        return [
            format_rate(asked["rate_bit_s"]),
            "packet" if asked["unit"] == "packet" else f"super-packet, {unit / 1000:.1f} kB",
            f"{asked['traffic']}; cores {_cores(asked)}{_disturbed(point)}",
            *(_number(result[f"error_p{share}"], ".3g", 100) for share in (50, 90, 99)),
            _number(result["over_10_percent"], ".2g", 100),
            _percent_off(result["full_rate_bit_s"], asked["rate_bit_s"]),
            f"{result['burst_bytes'] / 1000:.0f}",
        ]

    heads = ("rate", "unit", "what", "p50 %", "p90 %", "p99 %", "> 10 % off: %", "rate: %", "burst, kB")
    ordered = sorted(points, key=_by("rate_bit_s", "unit", "traffic", "busy", "awake"))
    return _table(heads, [*([*row, "-", "-"] for row in HIFI), *map(row, ordered)])


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
            _number(result["mean_lost_run_packets"]),
            f"{deviations:.1f}" + _disturbed(point),
            f"{result['queue_drops']} / {result['shaper_queue_drops']}",
        ]

    heads = (
        *("asked", "sent", "did not arrive", "share", "dropped by the shaper", "lost in a row, mean"),
        *("standard deviations off", "dropped elsewhere: queue / shaper's room"),
    )
    return _table(heads, map(row, points))


def _mininet(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        rate = asked["bw_mbit_s"] * 1e6
        return [
            f"{asked['bw_mbit_s']:g}",
            asked["delay"] or "none",
            _cores(asked),
            _percent_off(result["burst_rate_bit_s"], rate),
            _percent_off(result["flow_rate_bit_s"], rate),
            _number(result["goodput_bit_s"], ".1f", 1e-6),
            _number(result["rtt_p50_s"], ".3f", 1e3),
            "; ".join(result["said"][:2]).replace("|", "/")[:120] or "nothing" + _disturbed(point),
        ]

    heads = ("bw", "delay", "cores", "rate, queue filled: %", "TCP: %", "goodput, Mbit/s", "RTT, ms", "Mininet said")
    return _table(heads, map(row, sorted(points, key=lambda p: (p["asked"]["bw_mbit_s"], p["asked"]["busy"]))))


def _grouped(points: Iterable[Found], *keys: str) -> dict[tuple[Any, ...], list[Found]]:
    groups: dict[tuple[Any, ...], list[Found]] = defaultdict(list)
    for point in points:
        groups[_by(*keys)(point)].append(point["result"])
    return dict(sorted(groups.items()))


def _median(results: Sequence[Found], key: str) -> float:
    return float(statistics.median(result[key] for result in results))


def _set_up(points: Sequence[Found]) -> str:
    groups = _grouped(points, "nodes", "system")
    disturbed = {_by("nodes", "system")(point) for point in points if point["is_disturbed"]}
    rows = []
    for (nodes, system), results in groups.items():
        up_s = _median(results, "up_s")
        other = groups.get((nodes, "mininet"))
        times = _median(other, "up_s") / up_s if other and system == "longhaul" else None
        rows.append(
            [
                str(nodes),
                system,
                str(len(results)),
                f"{up_s:.2f}",
                f"{_median(results, 'down_s'):.2f}",
                f"{nodes / up_s:.0f}",
                _number(times, ".0f"),
                "yes" if (nodes, system) in disturbed else "",
            ]
        )
    heads = ("nodes", "system", "of", "up, s", "down, s", "nodes/s", "times plain Mininet", "others disturbed")
    return _table(heads, rows)


def _cost(points: Sequence[Found]) -> str:
    groups = _grouped(points, "rate_bit_s", "is_watched")
    disturbed = {_by("rate_bit_s", "is_watched")(point) for point in points if point["is_disturbed"]}
    rows = [
        [
            format_rate(rate),
            "yes" if watched else "no",
            f"{_median(results, 'all_s_per_gb'):.2f}",
            f"{_median(results, 'delay_line_s_per_gb'):.2f}",
            f"{_median(results, 'all_s_per_s'):.3f}",
            "yes" if (rate, watched) in disturbed else "",
        ]
        for (rate, watched), results in groups.items()
    ]
    heads = ("rate", "watched", "all, s/GB", "delay line, s/GB", "cores in use", "others disturbed")
    return _table(heads, rows)


def _dilation(points: Sequence[Found]) -> str:
    found = {_by("what", "congestion", "k")(point): point for point in points}
    rows = []
    for (what, congestion, k), point in sorted(found.items()):
        result, base = point["result"], found.get((what, congestion, 1))
        off = result["median_s"] / base["result"]["median_s"] - 1 if base else None
        tolerance = BULK_TOLERANCE if what == "bulk" else ALL_REDUCE_TOLERANCE
        has_target = congestion == "reno" and 1 < k <= 4
        rows.append(
            [
                "20 MB to the last byte" if what == "bulk" else "all-reduce of 10 MB, 4 ranks",
                congestion,
                f"{k:g}",
                _number(result["first_s"], ".3f"),
                " ".join(f"{one:.3f}" for one in result["warm_s"]),
                _number(result["median_s"], ".3f"),
                _number(off, "+.1f", 100),
                ("inside" if off is not None and abs(off) <= tolerance else "outside") if has_target else "reported",
            ]
        )
    heads = ("transfer", "tcp", "k", "first, s", "each, s", "median, s", "against k=1: %", "target")
    return _table(heads, rows)


_TABLES: dict[str, Callable[[Sequence[Found]], str]] = {
    "accuracy": _accuracy,
    "gaps": _gaps,
    "loss": _loss,
    "mininet_tclink": _mininet,
    "set_up": _set_up,
    "cost": _cost,
    "dilation": _dilation,
}
NAMES = tuple(_TABLES)
