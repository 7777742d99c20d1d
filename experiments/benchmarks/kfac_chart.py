"""How many times as fast PAD-KFAC is as SPD-KFAC, drawn over the links' rate, a line for each model."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.benchmarks.cells import Found
from experiments.benchmarks.kfac import EMULATED, RATES_GBIT_S, SIMULATED, SIMULATED_MODELS
from experiments.benchmarks.kfac_tables import cells, ratio
from testbed.analysis.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg

_LOOKS = {"SPD / PAD": ("-", "o"), "SPD / PAD, gradients": ("--", "s")}
"""Dashes of what is simulated, marker of what is emulated."""


def draw(points: Sequence[Found]) -> str:
    """As an SVG file's text."""
    with style():
        figure, (axes,) = new_figure(legend_rows=4)
        axes.axhline(1.0, color=OKABE_ITO[7], linewidth=0.8)
        for name, (dashes, marker) in _LOOKS.items():
            for color, model in zip(OKABE_ITO, SIMULATED_MODELS, strict=False):
                if curve := _curve(points, SIMULATED, model, name):
                    axes.plot(*zip(*curve, strict=True), color=color, linestyle=dashes, label=f"{model}, {name}")
                if dots := _curve(points, EMULATED, model, name):
                    label = f"{model}, {name}, emulated"
                    axes.plot(*zip(*dots, strict=True), color=color, linestyle="", marker=marker, label=label)
        axes.set_xscale("log")
        axes.set_xticks(RATES_GBIT_S)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(xlabel="each worker's link, Gbit/s", ylabel="SPD-KFAC's step / PAD-KFAC's")
        legend(axes)
        return standalone(to_svg(figure))


def _curve(points: Sequence[Found], kind: str, model: str, name: str) -> list[tuple[float, float]]:
    found = [(rate, ratio(by_arm, name)) for (of, rate), by_arm in cells(points, kind).items() if of == model]
    return [(rate, value) for rate, value in found if value is not None]
