"""Tables of the compressors: what they cost, what they do to learning, and what they do to a run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.common.tables import HALF_A_POINT, Found, disturbed, grouped, number, spread, table, within
from testbed.analysis.style.chart import new_figure, standalone, style, to_svg
from testbed.analysis.style.method_style import look_of

BASE = "none"
SHOWN = ("none", "fp16", "int8", "topk", "powersgd", "sz3")
"""In the README, in this order: those of `SHOWN_ON`."""
SHOWN_ON = {"workload": "digits", "topo": "wan100m"}


def learning(points: Sequence[Found]) -> str:
    """One row a member, the best first: accuracy over seeds, and against uncompressed trainings of the same seeds."""
    by_name: dict[str, dict[int, Found]] = {}
    for point in points:
        by_name.setdefault(point["asked"]["compressor"], {})[point["asked"]["seed"]] = point["result"]
    base = {seed: result["metric"]["value"] for seed, result in by_name.get(BASE, {}).items()}
    rows = []
    for name, results in by_name.items():
        values = {seed: result["metric"]["value"] for seed, result in results.items()}
        differences = [values[seed] - base[seed] for seed in sorted(values.keys() & base.keys())]
        mean = statistics.fmean(values.values())
        row = [
            name,
            str(len(values)),
            spread(list(values.values()), ".2f", 100),
            spread(differences, "+.2f", 100) if differences else "-",
            within(differences, HALF_A_POINT) if differences else "-",
            f"{statistics.fmean(result['dense_bytes'] / result['sent_bytes'] for result in results.values()):.1f}",
        ]
        rows.append((-mean, row))
    heads = ("compressor", "seeds", "accuracy, %", "against none, points", "within half a point", "dense / payload")
    return table(heads, [row for _, row in sorted(rows)])


def compression(points: Sequence[Found]) -> str:
    """A table for each workload and topology."""
    places = sorted({(p["asked"]["workload"], p["asked"]["topo"]) for p in points})
    sections = []
    for workload, topo in places:
        chosen = [p for p in points if (p["asked"]["workload"], p["asked"]["topo"]) == (workload, topo)]
        sections.append(f"**{workload} on {topo}**\n\n{_runs(chosen)}")
    return "\n\n".join(sections)


def _runs(points: Sequence[Found]) -> str:
    """The fastest first."""
    base = next((p["result"] for p in points if p["asked"]["compressor"] == BASE), None)
    metric = points[0]["result"]["metric"]
    rows = []
    for point in points:
        result = point["result"]
        row = [
            point["asked"]["compressor"] + disturbed(point),
            f"{result['step_s'] * 1e3:.0f}",
            number(base and base["step_s"] / result["step_s"], ".2f"),
            number(result["metric"]["value"], ".3f"),
            number(result["metric"]["time_to_target_s"], ".1f"),
            f"{result['time_s']:.1f}",
            f"{result['payload_bytes'] / 1e6:.1f}",
            f"{result['wan_bytes'] / 1e6:.1f}",
            f"{result['dense_bytes'] / result['payload_bytes']:.1f}",
            f"{result['dilation']:g}",
            result["verdict"],
        ]
        rows.append((result["step_s"], row))
    heads = (
        *("compressor", "step, ms", "none's step / this", metric["name"], f"s to {metric['target']:g}", "time, s"),
        *("payload, MB", "over the WAN, MB", "dense / payload", "k", "verdict"),
    )
    return table(heads, [row for _, row in sorted(rows)])


def shown(points: Sequence[Found]) -> list[Found]:
    """All runs of `SHOWN_ON`."""
    return [point for point in points if SHOWN_ON.items() <= point["asked"].items()]


def brief(points: Sequence[Found]) -> str:
    """A row for each of `SHOWN` that was measured."""
    by_name = {point["asked"]["compressor"]: point for point in shown(points)}
    chosen = [by_name[name] for name in SHOWN if name in by_name]
    rows = []
    for point in chosen:
        result = point["result"]
        row = [
            f"`{point['asked']['compressor']}`",
            f"{number(result['metric']['value'], '.1f', 100)}%",
            _seconds(result["metric"]["time_to_target_s"]),
            f"{result['time_s']:.1f} s",
            f"{result['step_s'] * 1e3:.0f} ms",
            f"{result['payload_bytes'] / 1e6:.1f} MB",
            f"{result['wan_bytes'] / 1e6:.1f} MB",
            f"{result['dense_bytes'] / result['payload_bytes']:.1f}",
            result["verdict"] + disturbed(point),
        ]
        rows.append(row)
    first = chosen[0]["result"]
    whole = (f"to {number(first['metric']['target'], '.0f', 100)}%", f"{first['steps']} steps")
    heads = ("`COMPRESSOR=`", "accuracy", *whole, "step", "payload", "over the WAN", "ratio", "verdict")
    return table(heads, rows)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def codecs(points: Sequence[Found]) -> str:
    """One row a member: shares of a copy's speed at the largest size, and what it makes of the values."""
    rows = []
    for (name,), results in grouped(points, "compressor").items():
        found: dict[tuple[str, int, int], Found] = {
            (one["allocator"], row["threads"], row["numel"]): row
            for one in results
            for row in one["rows"]
            if "skipped" not in row
        }
        largest = max((numel for _, _, numel in found), default=0)
        row = found.get(("kept", 1, largest))
        if row is None:
            continue
        others = [found.get(key) for key in (("kept", 2, largest), ("default", 1, largest))]
        smaller = [found.get(("kept", 1, 1 << bits)) for bits in (10, 16, 20)]
        rows.append(
            [
                name,
                number(row["bits"], ".3f"),
                number(row["relative_error"], ".4f"),
                number(row["cosine"], ".4f"),
                number(row["encode_s"] and 4 * largest / row["encode_s"], ".2f", 1e-9),
                number(row["decode_s"] and 4 * largest / row["decode_s"], ".2f", 1e-9),
                *(number(one and one["share"], ".3f") for one in (row, *others)),
                *(number(one and one["both_s"], ".0f", 1e6) for one in smaller),
            ]
        )
    heads = (
        *("compressor", "bits an element", "relative error", "cosine", "encode, GB/s", "decode, GB/s"),
        *("share of clone", "two threads", "default allocator", "1 K: us", "64 K: us", "1 M: us"),
    )
    return table(heads, rows)


TABLES: dict[str, Callable[[Sequence[Any]], str]] = {"codecs": codecs, "learning": learning, "compression": compression}


# When each compressor reached the target, over what it sent: the README's first figure.

_OTHERS = "#bbbbbb"


def draw(points: Sequence[Found]) -> str:
    """As an SVG file's text: those of the README's table by name, all others as grey points."""
    reached = [point for point in shown(points) if point["result"]["metric"]["time_to_target_s"] is not None]
    with style():
        figure, (axes,) = new_figure(legend_rows=6)
        for point in sorted(reached, key=lambda one: one["asked"]["compressor"] in SHOWN):  # the named ones on top
            name, result = point["asked"]["compressor"], point["result"]
            sent, time_s = result["wan_bytes"] / 1e6, result["metric"]["time_to_target_s"]
            if name in SHOWN:
                look = look_of(name)
                axes.plot(sent, time_s, color=look.color, marker=look.marker, markersize=7, linestyle="")
                axes.annotate(name, (sent, time_s), xytext=(7, 4), textcoords="offset points")
            else:
                axes.plot(sent, time_s, color=_OTHERS, marker="o", markersize=4, linestyle="")
        axes.set(xscale="log", yscale="log", xlabel="MB over the WAN in 80 steps", ylabel="s to the target")
        for axis, positions in ((axes.xaxis, (10, 30, 100, 300, 1000)), (axes.yaxis, (10, 20, 30))):
            axis.set_ticks(positions)
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        return standalone(to_svg(figure))
