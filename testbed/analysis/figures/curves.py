"""Figures of curves: accuracy over time, over bytes and over steps, and use of links over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from testbed.analysis.comparison.groups import Group
from testbed.analysis.figures import bands
from testbed.analysis.figures.methods import Facet, Row, facets, kind_word
from testbed.analysis.figures.table import (
    Axis,
    Figure,
    Guide,
    Panel,
    Series,
    Unit,
    metric_unit,
    padded,
    size_unit,
    time_unit,
)
from testbed.analysis.record.curves import curves_of
from testbed.analysis.record.identity import seed_of
from testbed.analysis.record.record import Point, Record, is_finite
from testbed.core.record.figure_kinds import BANDS

CurveOf = Mapping[str, Sequence[Point]]
"""Points of each run, by its id."""
_LOG_FROM = 10.0
"""Ratio of the ends of two curves from which on the axis is logarithmic."""


def over_time(groups: Sequence[Group], band: str, target: float | None) -> Figure:
    curves, faults = _read(groups, lambda found, _: found.metric)
    ends = _ends(curves)
    unit = time_unit(ends)
    words = unit.label(f"{kind_word(groups)}time")
    return _accuracy(
        "accuracy_over_time", groups, curves, band, target, words, unit, is_log=_is_wide(ends), faults=faults
    )


def over_bytes(groups: Sequence[Group], band: str, target: float | None) -> Figure:
    curves, faults = _read(groups, lambda found, _: found.metric_over_wan_bytes())
    ends = _ends(curves)
    unit = size_unit(ends)
    words = unit.label("bytes over WAN links")
    is_log = _is_wide(ends)
    return _accuracy("accuracy_over_bytes", groups, curves, band, target, words, unit, is_log=is_log, faults=faults)


def _is_wide(ends: Sequence[float]) -> bool:
    """Return True if the longest curve would leave no room for the shortest one on a linear axis."""
    positive = [end for end in ends if end > 0]
    return bool(positive) and max(positive) / min(positive) >= _LOG_FROM


def over_steps(groups: Sequence[Group], band: str, target: float | None) -> Figure:
    records = [record for group in groups for record in group.taken]
    curves = {record.run_id: _by_step(record) for record in records}
    return _accuracy("accuracy_over_steps", groups, curves, band, target, "step", Unit("", 1.0))


def _by_step(record: Record) -> list[Point]:
    name = record.metric_name()
    found = [event for event in record.of_kind("evaluation") if event.get("name") == name]
    first_rank = min((event["rank"] for event in found), default=None)
    points = [(event["step"], event["value"]) for event in found if event["rank"] == first_rank]
    return sorted({float(step): float(value) for step, value in points if is_finite(value)}.items())


def _read(groups: Sequence[Group], pick: Callable[..., list[Point]]) -> tuple[CurveOf, tuple[str, ...]]:
    records = [record for group in groups for record in group.taken]
    found = list(zip(records, curves_of(records), strict=True))
    faults = tuple(curves.fault for _, curves in found if curves.fault)
    return {record.run_id: pick(curves, record) for record, curves in found}, faults


def _ends(curves: CurveOf) -> list[float]:
    return [points[-1][0] for points in curves.values() if points]


def _accuracy(
    kind: str,
    groups: Sequence[Group],
    curves: CurveOf,
    band: str,
    target: float | None,
    x_label: str,
    x_unit: Unit,
    *,
    is_log: bool = False,
    faults: tuple[str, ...] = (),
) -> Figure:
    if is_log:  # which has no zero
        curves = {run_id: [(x, y) for x, y in points if x > 0] for run_id, points in curves.items()}
    shown = [group for group in groups if any(curves[record.run_id] for record in group.taken)]
    found, legend_title = facets(groups)
    drawn = []
    for facet in found:
        metric = next((name for row in facet.rows for g in row.groups if (name := g.metric_name)), "metric")
        y_unit = metric_unit(metric)
        series = [one for row in facet.rows if (one := _series(row, curves, band, x_unit, y_unit, is_log=is_log)).x]
        drawn.append((facet, metric, series))
    x_values = [value for *_, series in drawn for one in series for value in one.x]
    x_axis = Axis(x_label, padded(x_values, is_log=is_log, from_zero=not is_log), is_log)
    panels = [
        _panel(facet, series, _all(drawn, metric), metric, _target(facet, target), x_axis)
        for facet, metric, series in drawn
        if series
    ]
    without = len(groups) - len(shown)
    notes = [*band_notes(panels, band), *faults]
    if without:
        notes.append(f"{without} of {len(groups)} configurations have no such curve.")
    words = "metric" if len({metric for _, metric, _ in drawn}) > 1 else (drawn[0][1] if drawn else "metric")
    title = f"{words} over {kind.rpartition('_')[2]}"
    return Figure(kind, title, "lines", tuple(panels), legend_title, tuple(notes))


def _all(drawn: Sequence[tuple[Facet, str, list[Series]]], metric: str) -> list[Series]:
    return [one for _, name, series in drawn if name == metric for one in series]


def _series(row: Row, curves: CurveOf, band: str, x_unit: Unit, y_unit: Unit, *, is_log: bool = False) -> Series:
    of_seed: dict[int, list[list[Point]]] = defaultdict(list)
    for record in (record for group in row.groups for record in group.taken):
        points = [(x / x_unit.factor, y / y_unit.factor) for x, y in curves[record.run_id]]
        of_seed[seed_of(record)].append(points)
    found = bands.curve_band(of_seed, band, is_log=is_log)
    return row_series(row, found)


def row_series(row: Row, found: bands.Band) -> Series:
    """Return the series of a row with these values."""
    method = row.method
    values = (found.x, found.low, found.mid, found.high)
    return Series(row.label, method.strategy, method.compressor, *values, style=row.style, run_ids=row.run_ids)


def _target(facet: Facet, target: float | None) -> float | None:
    """Return the target that was asked for, or that all runs of the panel share."""
    if target is not None:
        return target
    records = [record for row in facet.rows for group in row.groups for record in group.taken]
    found = {((record.summary or {}).get("metric") or {}).get("target") for record in records}
    value = found.pop() if len(found) == 1 else None
    return float(value) if is_finite(value) else None


def _panel(
    facet: Facet,
    series: list[Series],
    of_metric: list[Series],
    metric: str,
    target: float | None,
    x: Axis,
) -> Panel:
    """Return a panel. All share `x`; those of one metric share its range too."""
    unit = metric_unit(metric)
    goal = [] if target is None else [target / unit.factor]
    heights = [value for one in of_metric for value in (*one.low, *one.high)]
    y = Axis(unit.label(metric), padded([*heights, *goal]))
    guides = tuple(_target_line(value, unit, x.range, series) for value in goal)
    return Panel(facet.title, x, y, tuple(series), guides)


def _target_line(value: float, unit: Unit, span: tuple[float, float], series: Sequence[Series]) -> Guide:
    """Return the target, named on the side on which fewer curves end."""
    above = sum(one.mid[-1] >= value for one in series)
    label = f"target {value:g} {unit.name}".rstrip()
    return Guide(label, span, (value, value), is_named_below=2 * above > len(series))


def band_notes(panels: Sequence[Panel], band: str) -> list[str]:
    """Return the sentence for a caption on lines and bands; nothing where no series has a band."""
    if any(one.has_band for panel in panels for one in panel.series):
        return [f"Line: mean over seeds. Band: {BANDS[band]}."]
    return []
