"""Time to the target against bytes over the WAN until then: a point for each row, and those that no other beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from testbed.analysis.comparison.groups import MEASURES, Group
from testbed.analysis.comparison.intervals import estimate
from testbed.analysis.record.curves import Curves
from testbed.analysis.record.identity import seed_of
from testbed.analysis.record.record import Point
from testbed.analysis.record.run_settings import show_time
from testbed.core.pareto import front
from testbed.core.units import format_size

_TO_TARGET = next(measure for measure in MEASURES if measure.key == "time_to_target_s")
MIN_ROWS = 2
"""One alone has nothing to be held against."""


@dataclass(frozen=True)
class Reached:
    """A row all of whose runs reached the target: of some alone a mean would be of the lucky ones."""

    group: Group
    runs: tuple[Point, ...]
    """(bytes until then, seconds)."""
    mean: Point
    """Over seeds."""


def reached(rows: Sequence[tuple[Group, list[Curves]]]) -> list[Reached]:
    """
    Args:
        rows: with the curves of the runs of each that are taken.
    """
    found = (_reached(group, curves) for group, curves in rows)
    return [one for one in found if one is not None]


def _reached(group: Group, curves: Sequence[Curves]) -> Reached | None:
    runs: list[Point] = []
    by_seed: tuple[dict[int, list[float]], dict[int, list[float]]] = ({}, {})
    for record, curve in zip(group.taken, curves, strict=True):
        seconds = _TO_TARGET.of(record)
        sent = None if seconds is None else curve.wan_bytes_until(seconds)
        if seconds is None or not sent:  # a logarithmic axis has no zero
            return None
        runs.append((sent, seconds))
        for values, value in zip(by_seed, runs[-1], strict=True):
            values.setdefault(seed_of(record), []).append(value)
    sent_mean, seconds_mean = (estimate(values) for values in by_seed)
    if sent_mean is None or seconds_mean is None:
        return None
    return Reached(group, tuple(runs), (sent_mean.mean, seconds_mean.mean))


def point_name(one: Reached) -> str:
    return f"{one.group.css_class} point"


def spoken(one: Reached) -> str:
    """For who points at it."""
    sent_bytes, seconds = one.mean
    runs = f", mean of {len(one.runs)} runs" if len(one.runs) > 1 else ""
    return f"{one.group.label}: {show_time(seconds)}, {format_size(round(sent_bytes))}{runs}"


def draw(axes: Axes, found: Sequence[Reached]) -> None:
    """In MB and seconds; runs as dots where a row has several, its mean with the marker of its method."""
    edge = front([one.mean for one in found])
    if len(edge) > 1:
        x, y = zip(*edge, strict=True)
        axes.plot([1e-6 * sent for sent in x], y, color="#999999", linestyle=":", drawstyle="steps-post", zorder=1)
    for one in found:
        plot_style = one.group.plot_style
        for sent, seconds in one.runs if len(one.runs) > 1 else ():
            axes.plot(
                1e-6 * sent, seconds, ".", color=plot_style.color, markersize=3, alpha=0.6, gid=one.group.css_class
            )
        marks: dict[str, Any] = {
            "marker": plot_style.marker,
            "color": plot_style.color,
            "linestyle": "none",
            "markersize": 7,
        }
        marks["gid"] = point_name(one)
        label = one.group.label + (" (front)" if one.mean in edge else "")
        sent_mb, seconds = 1e-6 * one.mean[0], one.mean[1]
        axes.plot(sent_mb, seconds, label=label, markeredgecolor="#1a1a1a", markeredgewidth=0.6, **marks)
    axes.set(xlabel="bytes that left the WAN links until then (MB)", ylabel="time to target (s)")
    axes.set_ylim(bottom=0)
