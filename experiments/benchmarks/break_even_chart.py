"""How many times as fast a round is with compression, drawn over clients: measured, and the formula's curves."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.benchmarks.break_even import ARMS, COMPRESSED, RAW
from experiments.benchmarks.break_even_tables import Arms, Formula, formula, pairs
from experiments.benchmarks.cells import Found
from testbed.analysis.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg

_CURVE_POINTS = 200
_MARKERS = "osx"
_ROOM = 1.15
"""Beside the fewest and the most clients."""


def draw(points: Sequence[Found]) -> str:
    """As an SVG file's text."""
    found = pairs(points)
    numbers = sorted({clients for of_rate in found.values() for clients in of_rate})
    with style():
        figure, (axes,) = new_figure(legend_rows=4)
        axes.axhline(1.0, color=OKABE_ITO[7], linewidth=0.8)
        for (rate, of_rate), color, marker in zip(found.items(), OKABE_ITO, _MARKERS, strict=False):
            _curves(axes, formula(rate, of_rate), numbers, f"{rate:g} Gbit/s", color)
            xs, ys = zip(*((clients, _ratio(arms)) for clients, arms in of_rate.items()), strict=True)
            axes.plot(xs, ys, color=color, marker=marker, linestyle="", label=f"{rate:g} Gbit/s, measured")
        for axis, positions in ((axes.xaxis, numbers), (axes.yaxis, (0.5, 1, 2, 3, 4))):
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
            axis.set_ticks(positions)
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(xlabel="clients", ylabel="raw round / compressed round")
        legend(axes)
        return standalone(to_svg(figure))


def _curves(axes: Axes, found: Formula, numbers: Sequence[int], name: str, color: str) -> None:
    least, most = numbers[0] / _ROOM, numbers[-1] * _ROOM
    curve = [least * (most / least) ** (step / _CURVE_POINTS) for step in range(_CURVE_POINTS + 1)]
    for overlaps, dashes, what in ((False, "-", "formula"), (True, "--", "formula, handling while more arrives")):
        raw, compressed = ([found.round_s(arm, clients, overlaps=overlaps) for clients in curve] for arm in ARMS)
        ratios = [raw_s / compressed_s for raw_s, compressed_s in zip(raw, compressed, strict=True)]
        axes.plot(curve, ratios, color=color, linestyle=dashes, label=f"{name}, {what}")


def _ratio(arms: Arms) -> float:
    return float(arms[RAW]["result"]["round_s"] / arms[COMPRESSED]["result"]["round_s"])
