"""Panels that are drawn: lines over elapsed time, points of two values, states over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from testbed.analysis.dashboard import units
from testbed.analysis.dashboard.fields import Style, marker_of
from testbed.analysis.record.record import Point
from testbed.analysis.style import chart

_PX = 96.0
_COLUMN_PX, _ROW_PX = 46.0, 30.0
"""Of the grid: a little less than on a large screen, so that letters can still be read on a phone."""
_HEAD_ROWS = 2.0
"""What a panel's title, description and legend leave less of its height."""
_LETTER_PX = 7.6
_MAX_POINTS = 24_000
"""Of all curves of a figure."""
_TIME_STEPS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)


@dataclass(frozen=True)
class Curve:
    """One series; for stacked panels one part."""

    name: str
    points: Sequence[Point]
    style: Style
    color: str
    dashes: str = "-"


@dataclass(frozen=True)
class Scale:
    """Of the values: where the panel says that they begin and end, and how they are printed."""

    style: Style
    minimum: float | None = None
    maximum: float | None = None


def lines(
    grid: Mapping[str, int], curves: Sequence[Curve], scale: Scale, end_s: float, *, stacked: bool, limits: bool
) -> str:
    """
    Args:
        limits: draw the thresholds as dashed lines.
    """

    def draw(axes: Axes) -> None:
        if stacked:
            _stack(axes, curves)
        most = max(40, _MAX_POINTS // max(1, len(curves)))
        for curve in () if stacked else curves:
            kept = chart.thin(curve.points, most)
            width = 1.0 if len(curves) > chart.LEGEND_ENTRIES else 1.3
            look: Any = {"color": curve.color, "linestyle": curve.dashes, "linewidth": width}
            look |= {"clip_on": False}  # a line at 0 is seen whole
            look |= {"marker": "o", "markersize": 3} if len(kept) == 1 else {}
            axes.plot([x for x, _ in kept], [y for _, y in kept], **look)
        if limits:
            bottom, top = _limits(axes, scale)
            for value, color in scale.style.thresholds:
                if bottom <= value <= top:
                    axes.axhline(value, color=color, linestyle=(0, (5, 4)), linewidth=1.0)

    return _figure(grid, draw, scale, _elapsed(end_s))


def points(
    grid: Mapping[str, int],
    curves: Sequence[Curve],
    scale: Scale,
    across: Scale,
    *,
    joined: bool,
) -> str:
    """Points of (x, y): `scale` is that of y."""

    def draw(axes: Axes) -> None:
        most = max(40, _MAX_POINTS // max(1, len(curves)))
        for curve in curves:
            kept = chart.thin(curve.points, most) if joined else curve.points
            look: Any = {"color": curve.color, "marker": marker_of(curve.name), "markersize": 3.5 if joined else 6.5}
            look |= {"markeredgecolor": "#1a1a1a", "markeredgewidth": 0.4}
            look |= {"linestyle": curve.dashes if joined else "none", "linewidth": 1.1, "clip_on": False}
            look["markevery"] = max(1, len(kept) // 12)
            axes.plot([x for x, _ in kept], [y for _, y in kept], **look)

    def finish(axes: Axes) -> None:
        axes.set_xlabel(across.style.axis_label)
        axes.set_ylabel(scale.style.axis_label)
        axes.set_xlim(*_widened(axes.get_xlim(), axes.dataLim.x0, axes.dataLim.x1))
        axes.set_xticks(*_ticks(*axes.get_xlim(), across.style.unit, 4))

    return _figure(grid, draw, scale, finish, labels=True)


def states(grid: Mapping[str, int], curves: Sequence[Curve], step_s: float, end_s: float) -> str:
    """A row for each series, in the colours of its states; equal ones side by side become one."""

    def draw(axes: Axes) -> None:
        for row, curve in enumerate(curves):
            spans: list[tuple[float, float, str]] = []
            for at_s, value in curve.points:
                color = curve.style.color_at(value)
                if spans and spans[-1][2] == color and at_s <= spans[-1][1] + step_s / 2:
                    spans[-1] = (spans[-1][0], at_s + step_s, color)
                else:
                    spans.append((at_s, at_s + step_s, color))
            bars = [(begin, min(end, end_s) - begin) for begin, end, _ in spans]
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=[color for *_, color in spans], alpha=0.7, linewidth=0)

    def finish(axes: Axes) -> None:
        _elapsed(end_s)(axes)
        axes.set_ylim(len(curves) - 0.5, -0.5)
        axes.set_yticks(range(len(curves)), [curve.name for curve in curves])
        axes.grid(visible=False)

    left_px = 14 + _LETTER_PX * max((len(curve.name) for curve in curves), default=0)
    rows = max(3.0, 0.62 * len(curves) + 1.6)
    return _figure({**grid, "h": rows + _HEAD_ROWS}, draw, None, finish, left_px=left_px)


def elapsed(seconds: float) -> str:
    """
    >>> elapsed(75), elapsed(3725)
    ('01:15', '1:02:05')
    """
    whole = round(seconds)
    minutes = f"{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes}" if whole >= 3600 else minutes


def _figure(
    grid: Mapping[str, float],
    draw: Callable[[Axes], None],
    scale: Scale | None,
    finish: Callable[[Axes], None],
    *,
    left_px: float | None = None,
    labels: bool = False,
) -> str:
    """An SVG of a panel's size. Margins are reckoned here: finding them by drawing twice takes longer than all else."""
    width_px = _COLUMN_PX * grid["w"]
    height_px = max(120.0, _ROW_PX * (grid["h"] - _HEAD_ROWS))
    with chart.style():
        figure = Figure(figsize=(width_px / _PX, height_px / _PX))
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
        axes.set_axisbelow(True)
        draw(axes)
        ticks = _value_axis(axes, scale) if scale else []
        finish(axes)
        left = left_px or 14 + _LETTER_PX * max(map(len, ticks), default=4) + (16 if labels else 0)
        bottom, top, right = (40.0 if labels else 24.0), 8.0, 20.0
        box = (left, bottom, width_px - left - right, height_px - bottom - top)
        axes.set_position((box[0] / width_px, box[1] / height_px, box[2] / width_px, box[3] / height_px))
        return chart.to_svg(figure)


def _stack(axes: Axes, curves: Sequence[Curve]) -> None:
    times = sorted({x for curve in curves for x, _ in curve.points})
    values = [[dict(curve.points).get(x, 0.0) for x in times] for curve in curves]
    if times:
        axes.stackplot(times, np.array(values), colors=[curve.color for curve in curves], alpha=0.75, linewidth=0)


def _value_axis(axes: Axes, scale: Scale) -> list[str]:
    """Ticks with their units; returns how they are printed."""
    bottom, top = _limits(axes, scale)
    axes.set_ylim(bottom, top)
    at, printed = _ticks(bottom, top, scale.style.unit, 5)
    axes.set_yticks(at, printed)
    return printed


def _ticks(low: float, high: float, unit: str, most: int) -> tuple[list[float], list[str]]:
    """Where they are, and how they are printed: of minutes and hours parts that have names."""
    if unit == "s" and high - low > 90:
        step = next((step_s for step_s in _TIME_STEPS_S if (high - low) / step_s <= most), _TIME_STEPS_S[-1])
        found = [float(step * index) for index in range(math.ceil(low / step), math.floor(high / step) + 1)]
    else:
        found = list(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    room = 1e-9 * (high - low)
    at = [0.0 if abs(tick) < room else float(tick) for tick in found if low - room <= tick <= high + room]
    return at, units.ticks(at, unit)


def _limits(axes: Axes, scale: Scale) -> tuple[float, float]:
    """What the panel asks for, else what the values span; where they are all 0, up to the first limit or to 1."""
    low, high = (axes.dataLim.y0, axes.dataLim.y1) if np.isfinite(axes.dataLim.y1) else (0.0, 1.0)
    bottom = low if scale.minimum is None else min(scale.minimum, low)
    top = high if scale.maximum is None else max(scale.maximum, high)
    if top <= bottom:
        positive = [value for value, _ in scale.style.thresholds if value > bottom and np.isfinite(value)]
        return bottom, (min(positive) * 1.05 if positive else bottom + (abs(bottom) or 1.0))
    room = 0.04 * (top - bottom)
    is_given = scale.maximum is not None and scale.maximum >= high
    return (
        bottom if scale.minimum is not None and scale.minimum <= low else bottom - room,
        top if is_given else top + room,
    )


def _widened(limits: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    """From 0 where the values are not far from it."""
    return (0.0 if 0 <= low < 0.5 * high else limits[0]), limits[1]


def _elapsed(end_s: float) -> Callable[[Axes], None]:
    def finish(axes: Axes) -> None:
        axes.set_xlim(0, end_s)
        step_s = next((step_s for step_s in _TIME_STEPS_S if end_s / step_s <= 6), _TIME_STEPS_S[-1])
        at = list(range(0, int(end_s) + 1, step_s))
        axes.set_xticks(at, [elapsed(seconds) for seconds in at])

    return finish
