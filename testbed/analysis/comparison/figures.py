"""The figures of a comparison: a curve for each row, its runs as thin lines, its mean over them as a thick one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from testbed.analysis.comparison import pareto
from testbed.analysis.comparison.comparison import Comparison
from testbed.analysis.comparison.groups import SETTING, Group
from testbed.analysis.record.curves import Curves, curves_of
from testbed.analysis.record.identity import spoken_kind
from testbed.analysis.record.record import Point
from testbed.analysis.style.chart import LEGEND_ENTRIES, legend, new_figure, style, thin, to_svg

PARETO = "time to target over WAN bytes until then"
"""The title's beginning of the figures in which methods are points."""
_WIDTH_IN = 4.8
"""Narrow, so that a phone shows the letters at a size that can be read."""
_MEAN_POINTS = 200
_MARKERS_A_CURVE = 8
_MANY_DECADES = 1e3


@dataclass(frozen=True)
class Figure:
    title: str
    svg: str
    groups: tuple[Group, ...]
    """That are in it."""

    @property
    def file_name(self) -> str:
        """Of letters and digits: a title has names from records in it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def figures(comparison: Comparison) -> tuple[list[Figure], list[str]]:
    """For each setting on each network those of its two that have a curve, the one whose rows are points, and a line
    for each run that could not be drawn."""
    runs = [record for group in comparison.groups for record in group.taken]
    found = dict(zip((record.run.path for record in runs), curves_of(runs), strict=True))
    by_setting: dict[str, list[Group]] = defaultdict(list)
    for group in comparison.groups:
        by_setting[_spoken(group)].append(group)
    drawn: list[Figure] = []
    for setting, groups in by_setting.items():
        rows = [(group, [found[record.run.path] for record in group.taken]) for group in groups]
        drawn += _of_setting(setting, rows)
        drawn += _pareto(setting, rows)
    return drawn, [curves.fault for curves in found.values() if curves.fault]


def _spoken(group: Group) -> str:
    """Its setting and its network, of which there may be several of one name."""
    topo, workload, workers, kind = (dict(zip(SETTING, group.setting, strict=True))[key] for key in SETTING)
    network = f"{topo} {group.network}".rstrip()
    return f"{network}, {workload}, {workers} workers ({spoken_kind(kind)})"


def _of_setting(setting: str, rows: Sequence[tuple[Group, list[Curves]]]) -> Iterator[Figure]:
    names = sorted({name for group, _ in rows if (name := group.metric_name)})
    metric = " / ".join(names) or "metric"
    # methods differ in bytes by factors of ten and more
    for over, xlabel, scale, kind in (
        ("time", "time (s)", 1.0, "linear"),
        ("WAN bytes", "bytes that left the WAN links (MB)", 1e-6, "log"),
    ):
        with style():
            figure, (axes,) = new_figure(legend_rows=min(len(rows), LEGEND_ENTRIES), width_in=_WIDTH_IN)
            for group, found in rows:
                curves = [c.metric if over == "time" else _after_the_first_byte(c) for c in found]
                _draw(axes, group, [[(x * scale, y) for x, y in curve] for curve in curves if curve], kind)
            if not axes.lines:
                continue  # a replay has no metric, and a network of one region no WAN
            axes.set(xlabel=xlabel, ylabel=metric)
            if kind == "log":
                _log_scale(axes)
            legend(axes)
            groups = tuple(group for group, _ in rows)
            yield Figure(f"{metric} over {over}: {setting}", to_svg(figure), groups)


def _pareto(setting: str, rows: Sequence[tuple[Group, list[Curves]]]) -> Iterator[Figure]:
    found = pareto.reached(rows)
    if len(found) < pareto.MIN_ROWS:
        return
    with style():
        figure, (axes,) = new_figure(legend_rows=min(len(found), LEGEND_ENTRIES), width_in=_WIDTH_IN)
        pareto.draw(axes, found)
        _log_scale(axes)
        legend(axes)
        svg = to_svg(figure, {pareto.point_name(one): pareto.spoken(one) for one in found})
        yield Figure(f"{PARETO}: {setting}", svg, tuple(one.group for one in found))


def _after_the_first_byte(curves: Curves) -> list[Point]:
    """A logarithmic axis has no zero."""
    return [(sent, value) for sent, value in curves.metric_over_wan_bytes() if sent > 0]


def _log_scale(axes: Axes) -> None:
    """With plain numbers at it: matplotlib's own labels are formulas, which `style` does not read."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < _MANY_DECADES else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw(axes: Axes, group: Group, curves: Sequence[Sequence[Point]], kind: str) -> None:
    if not curves:
        return
    plot_style = group.plot_style
    plain: dict[str, Any] = {"color": plot_style.color, "linestyle": plot_style.dashes, "gid": group.css_class}
    for curve in curves if len(curves) > 1 else ():
        axes.plot(*zip(*thin(curve), strict=True), **plain, linewidth=0.6, alpha=0.5)
    points = thin((len(curves) > 1 and mean_curve(curves, kind)) or curves[0])
    axes.plot(
        *zip(*points, strict=True),
        **plain,
        label=group.label,
        marker=plot_style.marker,
        markersize=4.5,
        markeredgecolor="#1a1a1a",  # the palette's yellow is pale on white
        markeredgewidth=0.5,
        markevery=max(1, len(points) // _MARKERS_A_CURVE),
    )


def mean_curve(curves: Sequence[Sequence[Point]], kind: str = "linear") -> list[Point]:
    """Over the stretch that all curves cover, straight between their points on an axis of this kind; empty where they
    share none."""
    inward, outward = (np.log, np.exp) if kind == "log" else (np.asarray, np.asarray)
    lines = [(inward(np.array([x for x, _ in curve])), np.array([y for _, y in curve])) for curve in curves]
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    if first > last:
        return []
    x = np.linspace(first, last, _MEAN_POINTS)
    mean = sum(np.interp(x, *line) for line in lines) / len(lines)
    return [(float(a), float(b)) for a, b in zip(outward(x), mean, strict=True)]
