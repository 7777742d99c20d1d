"""A figure as a plain table, before any library draws it. Both backends draw what is in it and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from testbed.analysis.style.series_style import SeriesStyle

Range = tuple[float, float]
_LARGEST = 1e100
"""Bound of what axes show: nothing is measured that is as large, and no axis reaches the largest float."""
_MIN_LABEL_GAP = 0.075
"""Smallest distance of two direct labels, as a share of the panel's height."""


@dataclass(frozen=True)
class Series:
    """One row of a legend. All tuples have the same length."""

    label: str
    strategy: str
    compressor: str
    x: tuple[float, ...]
    low: tuple[float, ...]
    mid: tuple[float, ...]
    """Mean over seeds."""
    high: tuple[float, ...]
    style: SeriesStyle
    run_ids: tuple[str, ...] = ()
    hatch: str = ""
    """Filling of bars."""

    @property
    def has_band(self) -> bool:
        return self.low != self.mid or self.high != self.mid


@dataclass(frozen=True)
class Axis:
    label: str
    """Words and unit, such as "emulated time (s)"."""
    range: Range
    is_log: bool = False
    ticks: tuple[float, ...] = ()
    """Values that have a tick; none: each backend chooses."""
    categories: tuple[str, ...] = ()
    """Texts at 0, 1, 2 …, where values are places and no numbers."""


@dataclass(frozen=True)
class Guide:
    """A thin grey line that is no result: a target, a front, what would be ideal."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    is_stepped: bool = False
    is_named_below: bool = False
    """True if its label stands below its last point, otherwise above."""


@dataclass(frozen=True)
class Panel:
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()


@dataclass(frozen=True)
class Figure:
    """Panels of one kind.

    `form` is "lines", "points" (one point a series), "ranking" (one point a series, in rows), "stack" (bars in rows)
    or "area" (stacked layers).
    """

    kind: str
    title: str
    form: str
    panels: tuple[Panel, ...]
    legend_title: str = ""
    notes: tuple[str, ...] = ()
    """Sentences for a caption: what line and band are, and what is left out."""
    left_out: tuple[str, ...] = ()
    """Sentences of `notes` that say which runs are not drawn."""

    @property
    def has_direct_labels(self) -> bool:
        """True if labels stand at the series, since a legend would be far from most panels."""
        return self.form in ("lines", "points") and len(self.panels) > 1

    @property
    def is_sideways(self) -> bool:
        """True if categories stand on the vertical axis, so that values run along the horizontal one."""
        return self.form in ("ranking", "stack")


def label_heights(panel: Panel) -> list[float]:
    """Return where direct labels stand: one height for each series, as a share of the panel's, none over another."""
    low, high = panel.y.range
    wanted = [(one.mid[-1] - low) / (high - low or 1.0) if one.mid else 0.0 for one in panel.series]
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    places = [wanted[index] for index in order]
    for _ in range(100):
        moved = _pushed_apart(places)
        if moved == places:
            break
        places = moved
    if places:  # as a whole, back into the panel
        below, above = max(0.0, -places[0]), max(0.0, places[-1] - 1.0)
        places = [place + (below - above if below + above < 1 else 0.0) for place in places]
    by_series = dict(zip(order, places, strict=True))
    return [by_series[index] for index in range(len(wanted))]


def _pushed_apart(places: list[float]) -> list[float]:
    found = list(places)
    for index in range(len(found) - 1):
        overlap = _MIN_LABEL_GAP - (found[index + 1] - found[index])
        if overlap > 1e-9:
            found[index] -= overlap / 2
            found[index + 1] += overlap / 2
    return found


def padded(values: Iterable[float], *, is_log: bool = False, from_zero: bool = False) -> Range:
    """Return the range of an axis that shows all `values`, with some room."""
    found = [value for value in values if abs(value) <= _LARGEST and (value > 0 or not is_log)]
    low, high = (min(found), max(found)) if found else (1.0, 2.0)
    if is_log:
        return low / 1.15, high * 1.15
    if from_zero:
        return min(0.0, low), high * 1.05 or 1.0
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


# Units of axes: the one in which the largest value has few digits.


@dataclass(frozen=True)
class Unit:
    name: str
    factor: float
    """Number of base units in one."""

    def label(self, words: str) -> str:
        return f"{words} ({self.name})" if self.name else words


_TIMES = (Unit("h", 3600.0), Unit("min", 60.0), Unit("s", 1.0), Unit("ms", 1e-3))
_SIZES = (Unit("GB", 1e9), Unit("MB", 1e6), Unit("kB", 1e3), Unit("B", 1.0))
_MIN_SHOWN = {"h": 3 * 3600.0, "min": 10 * 60.0, "s": 1.0, "ms": 0.0}
"""Seconds from which on a unit is taken."""


def time_unit(values_s: Iterable[float]) -> Unit:
    largest = max(values_s, default=1.0)
    return next((unit for unit in _TIMES if largest >= _MIN_SHOWN[unit.name]), _TIMES[-1])


def size_unit(values_bytes: Iterable[float]) -> Unit:
    largest = max(values_bytes, default=1.0)
    return next((unit for unit in _SIZES if largest >= unit.factor), _SIZES[-1])


def metric_unit(name: str) -> Unit:
    """Return percent for accuracies, no unit for others, such as a perplexity."""
    return Unit("%", 0.01) if "accuracy" in name else Unit("", 1.0)
