"""Ratios of throughput between continents, predicted over published."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from experiments.benchmarks.cells import Found
from experiments.benchmarks.real_wan import ratio
from experiments.benchmarks.real_wan_published import MODELS
from experiments.benchmarks.real_wan_tables import NEAR, emulated_ratios
from testbed.analysis.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg

_WINDOW = (0.5, 1.05)
"""Holds every ratio that was published, and each prediction."""


def draw(points: Sequence[Found]) -> str:
    """Simulated hollow, emulated filled, shaded what lies within the error asked for; as an SVG file's text."""
    emulated = emulated_ratios(points)
    with style():
        figure, (axes,) = new_figure(legend_rows=6, width_in=5.6)
        low, high = ([edge * (1 + sign * NEAR) for edge in _WINDOW] for sign in (-1, 1))
        axes.fill_between(_WINDOW, low, high, color="#dddddd", label="within 10 %")
        axes.plot(_WINDOW, _WINDOW, color=OKABE_ITO[7], linewidth=0.8)
        for (key, model), color, marker in zip(MODELS.items(), OKABE_ITO, "os", strict=False):
            look = {"color": color, "marker": marker, "linestyle": ""}
            published = model.ratios
            simulated = [ratio(key, run) for run in published]
            axes.plot(list(published.values()), simulated, markerfacecolor="none", label=f"{key}, simulated", **look)
            of_model = {run: found for (name, run), found in emulated.items() if name == key}
            axes.plot([published[run] for run in of_model], list(of_model.values()), label=f"{key}, emulated", **look)
            _name(axes, {run: (published[run], found) for run, found in of_model.items()})
        axes.set(xlim=_WINDOW, ylim=_WINDOW, xlabel="published throughput over that in one zone", ylabel="predicted")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        legend(axes)
        return standalone(to_svg(figure))


def _name(axes: Axes, runs: dict[str, tuple[float, float]]) -> None:
    for run, (x, y) in runs.items():
        axes.annotate(run, (x, y), textcoords="offset points", xytext=(7, -8), fontsize=8)
