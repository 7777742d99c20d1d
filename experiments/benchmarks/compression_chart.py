"""When each compressor reached the target, over what it sent: the README's first figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.benchmarks.cells import Found
from experiments.benchmarks.compression_tables import SHOWN, shown
from testbed.analysis.chart import new_figure, standalone, style, to_svg
from testbed.analysis.looks import look_of

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
