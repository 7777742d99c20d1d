"""Figures of the studies' sweeps, from what `keep` kept of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.studies.sweep_tables import Row, in_order, kind_of, mean, simulated_scale_s, to_target_s
from testbed.analysis.style.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg

_MARKERS = "os^Dvx"
"""With eight colours, 24 looks that differ."""
_SPREAD = 0.16
"""Between the points of one member on several networks, in lines."""
_BY_STEP = "step_p50_s"


def strategies(found: Mapping[str, Any]) -> str:
    """A panel for each network, each run that reached the target: when, over the bytes of whole runs. An SVG file."""
    topos = in_order(found["rows"], "topo")
    with style():
        figure, panels = new_figure(len(topos), legend_rows=2)
        known: dict[str, Any] = {}
        for axes, topo in zip(panels, topos, strict=True):
            known |= _strategies_on(axes, topo, found)
            axes.set(xscale="log", yscale="log", title=topo, xlabel="MB over the WAN")
            _plain(axes, (20, 100, 500, 2000), (5, 10, 20, 40))
        _one_window(panels)
        panels[0].set_ylabel("s to the target")
        figure.legend(list(known.values()), list(known), loc="outside lower center", ncols=max(1, len(known)))
        return standalone(to_svg(figure))


def compressors(found: Mapping[str, Any]) -> str:
    """A line for each member, a colour for each network: how many times as fast a step is as with `none`, and the
    interval of that."""
    topos, ratios = in_order(found["rows"], "topo"), speed_ups(found["rows"])
    halves = ratio_halves(found["rows"])
    members = sorted({member for member, _ in ratios if member != "none"}, key=lambda member: _most(ratios, member))
    with style():
        figure, (axes,) = new_figure(legend_rows=8)
        axes.axvline(1.0, color=OKABE_ITO[7], linewidth=0.8)
        for number, (topo, (color, marker)) in enumerate(_plot_styles(topos).items()):
            above = _SPREAD * ((len(topos) - 1) / 2 - number)
            lines = [line for line, member in enumerate(members) if (member, topo) in ratios]
            cells = [(members[line], topo) for line in lines]
            axes.errorbar(
                [ratios[cell] for cell in cells],
                [line + above for line in lines],
                xerr=[ratios[cell] * halves[cell] for cell in cells],
                color=color,
                marker=marker,
                markersize=4,
                linestyle="",
                label=topo,
            )
        axes.set_yticks(range(len(members)), members)
        axes.set_xlabel("step with none / step")
        legend(axes)
        return standalone(to_svg(figure))


def scale(found: Mapping[str, Any]) -> str:
    """A step over the number of workers, a colour for each kind: points as emulated, broken lines as simulated."""
    simulated = simulated_scale_s(found["common"])
    kinds = list(dict.fromkeys(kind_of(row) for row in found["rows"]))
    with style():
        figure, (axes,) = new_figure(legend_rows=3)
        for kind, (color, marker) in _plot_styles(kinds).items():
            told = sorted((workers, step_s) for (name, workers), step_s in simulated.items() if name == kind)
            axes.plot(*zip(*told, strict=True), color=color, linestyle="--", linewidth=0.8)
            rows = [row for row in found["rows"] if kind_of(row) == kind and mean(row, _BY_STEP) is not None]
            sizes = [int(row["axes"]["workers"]) for row in rows]
            steps_s = [float(row["values"][_BY_STEP]["mean"]) for row in rows]
            off_s = [step_s * (_half(row, _BY_STEP) or 0.0) for row, step_s in zip(rows, steps_s, strict=True)]
            axes.errorbar(sizes, steps_s, off_s, color=color, marker=marker, markersize=5, linestyle="", label=kind)
        axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="step, s")
        _plain(axes, (4, 16, 64), (0.2, 0.5, 1, 2, 5, 10))
        legend(axes)
        return standalone(to_svg(figure))


def speed_ups(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """By member and network, where both it and `none` have a step."""
    steps = {_cell(row): mean(row, _BY_STEP) for row in rows}
    return {
        (member, topo): dense_s / step_s
        for (member, topo), step_s in steps.items()
        if step_s is not None and (dense_s := steps.get(("none", topo))) is not None
    }


def _cell(row: Row) -> tuple[str, str]:
    return row["axes"]["compressor"], row["axes"]["topo"]


def _most(ratios: Mapping[tuple[str, str], float], member: str) -> float:
    return max(ratio for (name, _), ratio in ratios.items() if name == member)


def _strategies_on(axes: Axes, topo: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """What was drawn of each strategy that reached the target there; its colour is the same on all networks."""
    names = in_order(found["rows"], "strategy")
    plot_styles, drawn = _plot_styles(names), {}
    for row in (one for one in found["rows"] if one["axes"]["topo"] == topo):
        name, sent = row["axes"]["strategy"], mean(row, "wan_bytes")
        times_s = [time_s for time_s in to_target_s(found["points"], topo, name).values() if time_s is not None]
        if times_s and sent is not None:
            color, marker = plot_styles[name]
            (drawn[name],) = axes.plot([sent / 1e6] * len(times_s), times_s, marker, color=color, markersize=5)
    return drawn


def _plot_styles(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each, however many there are."""
    return dict(zip(names, zip(itertools.cycle(OKABE_ITO), itertools.cycle(_MARKERS), strict=False), strict=False))


def ratio_halves(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Of each of `speed_ups`, half of its interval as a share of it: the relative intervals of the member's steps and
    of those of `none`, which are of other runs, in quadrature; 0 where one of the two has one seed and so no interval.
    """
    own = {_cell(row): _half(row, _BY_STEP) for row in rows}
    return {cell: _quadrature(own[cell], own["none", cell[1]]) for cell in speed_ups(rows)}


def _quadrature(one: float | None, other: float | None) -> float:
    return 0.0 if one is None or other is None else math.hypot(one, other)


def _half(row: Row, measure: str) -> float | None:
    """Half of the interval as a share of the mean; None where there is no value, or one seed and so no interval."""
    value = row["values"][measure]
    return None if value is None or value["high"] is None else float(value["high"] / value["mean"] - 1)


def _one_window(panels: Sequence[Axes]) -> None:
    """So that panels are compared by eye, and no point of any is left out."""
    xs, ys = ([edge for axes in panels for edge in limits(axes)] for limits in (Axes.get_xlim, Axes.get_ylim))
    for axes in panels:
        axes.set(xlim=(min(xs), max(xs)), ylim=(min(ys), max(ys)))


def _plain(axes: Axes, xs: tuple[float, ...], ys: tuple[float, ...]) -> None:
    """Both axes with these positions, written as they are."""
    for axis, positions in ((axes.xaxis, xs), (axes.yaxis, ys)):
        axis.set_ticks(positions)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
