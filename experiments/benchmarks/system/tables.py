"""Tables of what is not about one link of ours: plain Mininet beside it, netem, set-up, what emulating costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.common.tables import Found, by, cores, disturbed, grouped, median, number, percent_off, table
from testbed.analysis.comparison.intervals import estimate
from testbed.core.units import format_rate, format_time

_LEAST_RTT_S = 0.0002
"""Of our points that stand for no delay."""
_SAID_CHARACTERS = 120
_STARTS = {"shared": "forked from one", "interpreters": "an interpreter each"}
_SYSTEMS = {"longhaul": "longhaul, netem", "mininet": "Mininet, TCLink"}


def mininet(points: Sequence[Found], beside: Sequence[Found]) -> str:
    """`beside`: the points of `accuracy`, of which those almost without a delay are ours at the same rates."""
    ours = {
        (point["asked"]["rate_bit_s"], point["asked"]["busy"]): point["result"]
        for point in beside
        if point["asked"]["rtt_s"] == _LEAST_RTT_S
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


def netem(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        rtt = asked["rtt_s"]
        errors = [
            number(None if result[key] is None else result[key] - rtt, "+.3f", 1e3)
            for key in ("rtt_p50_s", "rtt_p99_s")
        ]
        rates = result["filled_rates_bit_s"]
        spread = [percent_off(rate, asked["rate_bit_s"]) for rate in (rates[0], rates[-1])] if rates else ["-", "-"]
        return [
            format_rate(asked["rate_bit_s"]),
            format_time(rtt),
            format_time(rtt / 2),
            _SYSTEMS[asked["system"]],
            percent_off(result["filled_rate_bit_s"], asked["rate_bit_s"]),
            " to ".join(spread),
            " / ".join(errors),
            f"{result['probes']}{disturbed(point)}",
        ]

    heads = (
        *("rate", "RTT", "asked one way", "system", "rate, queue filled: %", "least to most: %"),
        *("RTT error p50 / p99, ms", "probes that came"),
    )
    return table(heads, map(row, sorted(points, key=by("rate_bit_s", "rtt_s", "system"))))


def set_up(points: Sequence[Found]) -> str:
    groups = grouped(points, "nodes", "system")
    marked = {by("nodes", "system")(point) for point in points if point["is_disturbed"]}
    rows = []
    for (nodes, system), results in groups.items():
        up_s = median(results, "up_s")
        other = groups.get((nodes, "mininet"))
        times = median(other, "up_s") / up_s if other and system == "longhaul" else None
        rows.append(
            [
                str(nodes),
                system,
                str(len(results)),
                f"{up_s:.2f}",
                f"{median(results, 'down_s'):.2f}",
                f"{nodes / up_s:.0f}",
                number(times, ".0f"),
                "yes" if (nodes, system) in marked else "",
            ]
        )
    heads = ("nodes", "system", "of", "up, s", "down, s", "nodes/s", "times plain Mininet", "others disturbed")
    return table(heads, rows)


def start_up(points: Sequence[Found]) -> str:
    groups = grouped(points, "workers", "start")
    marked = {by("workers", "start")(point) for point in points if point["is_disturbed"]}
    rows = [
        [
            str(workers),
            _STARTS[start],
            str(len(results)),
            *(f"{median(results, key):.1f}" for key in ("containers_s", "warm_s", "first_step_s", "cpu_s")),
            f"{median(results, 'pss_bytes') / 1e9:.2f}",
            "yes" if (workers, start) in marked else "",
        ]
        for (workers, start), results in groups.items()
    ]
    heads = (
        *("workers", "start", "of", "containers up, s", "all connected and warm, s", "first step begins, s"),
        *("CPU, s", "memory, GB", "others disturbed"),
    )
    return table(heads, rows)


def cost(points: Sequence[Found]) -> str:
    columns = {
        "all, s/GB": ("all_s_per_gb", 1, ".2f"),
        "delay line, s/GB": ("delay_line_s_per_gb", 1, ".2f"),
        "cores in use": ("all_s_per_s", 1, ".3f"),
    }
    return _medians(points, "rate_bit_s", ("rate", format_rate), columns)


def monitor(points: Sequence[Found]) -> str:
    columns = {
        "collector, ms/s": ("collector_s_per_s", 1e3, ".1f"),
        "probe process, ms/s": ("probe_s_per_s", 1e3, ".1f"),
    }
    return _medians(points, "links", ("WAN links", str), columns)


def observation(points: Sequence[Found]) -> str:
    """All repeats together; the interval is over pairs of windows."""
    results = [point["result"] for point in points]
    ratios = [ratio for result in results for ratio in result["ratios"]]
    longer = estimate({number: [ratio] for number, ratio in enumerate(ratios)})
    assert longer is not None and longer.half_width is not None
    heads = (
        *("runs", "k", "step, ms", "collector: of a core", "observed steps are longer by", "±", "pairs of windows"),
        "others disturbed",
    )
    row = [
        str(len(results)),
        f"{median(results, 'dilation'):g}",
        f"{median(results, 'step_s') * 1e3:.0f}",
        f"{median(results, 'collector_s_per_sample'):.2%}",
        f"{longer.mean - 1:+.2%}",
        f"{longer.half_width:.2%}",
        str(len(ratios)),
        "yes" if any(point["is_disturbed"] for point in points) else "",
    ]
    return table(heads, [row])


def _medians(
    points: Sequence[Found],
    key: str,
    first: tuple[str, Callable[[Any], str]],
    columns: Mapping[str, tuple[str, float, str]],
) -> str:
    """A row for each value of `key`, with the medians over its repeats.

    Args:
        first: head of the first column, and how it says a value.
        columns: by head: the figure, the factor and the format in which it is shown.
    """
    groups = grouped(points, key)
    marked = {by(key)(point) for point in points if point["is_disturbed"]}
    head, spoken = first
    rows = [
        [
            spoken(value),
            str(len(results)),
            *(f"{median(results, figure) * factor:{form}}" for figure, factor, form in columns.values()),
            "yes" if (value,) in marked else "",
        ]
        for (value,), results in groups.items()
    ]
    return table((head, "of", *columns, "others disturbed"), rows)
