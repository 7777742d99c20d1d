"""Tables and figure of compressors in whole runs."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.common.tables import Found, disturbed, number, table
from testbed.analysis.style.chart import new_figure, standalone, style, to_svg
from testbed.analysis.style.series_style import Method, styles_for

BASE = "none"
SHOWN = ("none", "fp16", "int8", "topk", "powersgd", "sz3")
"""In the README, in this order: those of `SHOWN_ON`."""
SHOWN_ON = {"workload": "digits", "topo": "wan100m"}
_OTHERS = "#bbbbbb"


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


def draw(points: Sequence[Found]) -> str:
    """As an SVG file's text: those of the README's table by name, all others as grey points."""
    reached = [point for point in shown(points) if point["result"]["metric"]["time_to_target_s"] is not None]
    with style():
        figure, (axes,) = new_figure(legend_rows=6)
        looks = {method.compressor: one for method, one in styles_for([Method("ddp", name) for name in SHOWN]).items()}
        for point in sorted(reached, key=lambda one: one["asked"]["compressor"] in SHOWN):  # the named ones on top
            name, result = point["asked"]["compressor"], point["result"]
            sent, time_s = result["wan_bytes"] / 1e6, result["metric"]["time_to_target_s"]
            if name in SHOWN:
                look = looks[name]
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
