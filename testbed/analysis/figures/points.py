"""Figures of one value a configuration: time to target, Pareto front, step split, scaling."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from testbed.analysis.comparison.groups import Group
from testbed.analysis.figures.bands import Band, value_band
from testbed.analysis.figures.curves import row_series
from testbed.analysis.figures.methods import Row, facets, kind_word
from testbed.analysis.figures.table import Axis, Figure, Guide, Panel, Series, Unit, padded, size_unit, time_unit
from testbed.analysis.record.curves import Curves, curves_of
from testbed.analysis.record.identity import seed_of
from testbed.analysis.record.record import Point, Record, is_finite
from testbed.analysis.style.series_style import COLORS, HATCHES, SeriesStyle
from testbed.core.pareto import front
from testbed.core.record.figure_kinds import BANDS

_VALUES = ("low", "mid", "high")
COMPARABLE = 10.0
"""Largest ratio of the longest steps of panels that share a scale; beyond, the shorter bars could not be read."""
ValueOf = Callable[[Record], float | None]
PHASES = ("forward", "backward", "compress", "decompress", "optimizer", "exposed_communication")
"""Phases that exclude one another and add up to the step; `communicate` overlaps them."""
PHASE_STYLES = {
    phase: (SeriesStyle(COLORS[color], "s"), HATCHES[place])
    for place, (phase, color) in enumerate(zip(PHASES, (1, 2, 7, 4, 3, 5), strict=True))
}
"""Style and hatch of each of `PHASES`."""


def time_to_target(groups: Sequence[Group], band: str, target: float | None) -> Figure:
    """Return the time until a metric reached its target, or `target`."""
    reached = _times_to_target(groups, target)
    unit = time_unit(value for value in reached.values() if value is not None)
    found, legend_title = facets(groups)
    panels = []
    for facet in found:
        series = []
        for place, row in enumerate(facet.rows):
            one = _point(row, lambda record: reached[record.run_id], float(place), band, unit)
            series.append(dataclasses.replace(one, label=f"{row.label}{_share(row, reached)}"))
        if not any(one.x for one in series):
            continue
        x = Axis("", (-0.5, len(series) - 0.5), categories=tuple(one.label for one in series))
        y = Axis(unit.label(f"{kind_word(groups)}time to target"), padded(_values(series), from_zero=True))
        panels.append(Panel(facet.title, x, y, tuple(series)))
    panels = _sharing_y(panels, from_zero=True)
    notes = _notes(panels, band)
    if not panels:
        notes.append("No run reached the target.")
    elif None in reached.values():
        notes.append("(k of n): k of n runs reached the target, and the mean is theirs.")
    return Figure("time_to_target", "time to target", "ranking", tuple(panels), legend_title, tuple(notes))


def _share(row: Row, reached: Mapping[str, float | None]) -> str:
    times = [reached[run_id] for run_id in row.run_ids]
    count = sum(time is not None for time in times)
    return "" if count == len(times) else f" ({count} of {len(times)})"


def _times_to_target(groups: Sequence[Group], target: float | None) -> dict[str, float | None]:
    records = [record for group in groups for record in group.taken]
    if target is None:
        found = {record.run_id: ((record.summary or {}).get("metric") or {}) for record in records}
        return {run_id: _number(metric.get("time_to_target_s")) for run_id, metric in found.items()}
    curves = curves_of(records)
    return {record.run_id: _first(record, one, target) for record, one in zip(records, curves, strict=True)}


def _first(record: Record, curves: Curves, target: float) -> float | None:
    """Return the time of the first evaluation that reached `target`."""
    models = record.of_kind("model")
    sign = -1.0 if models and models[0].get("higher_is_better") is False else 1.0
    return next((t_s for t_s, value in curves.metric if sign * value >= sign * target), None)


def _number(value: object) -> float | None:
    return float(value) if is_finite(value) else None


def pareto(groups: Sequence[Group], band: str, target: float | None) -> Figure:
    """Return time to target against bytes over WAN links until then, of configurations whose runs all reached it."""
    reached = _times_to_target(groups, target)
    records = [record for group in groups for record in group.taken]
    curves = dict(zip((record.run_id for record in records), curves_of(records), strict=True))
    sent: dict[str, float | None] = {}
    for run_id, seconds in reached.items():
        sent[run_id] = None if seconds is None else curves[run_id].wan_bytes_until(seconds) or None
    shown = [group for group in groups if all(sent[record.run_id] for record in group.taken)]
    time = time_unit(value for value in reached.values() if value is not None)
    size = size_unit(value for value in sent.values() if value is not None)
    found, legend_title = facets(groups)
    drawn = []
    for facet in found:
        rows = [row for row in facet.rows if all(group in shown for group in row.groups)]
        times = [_point(row, lambda record: reached[record.run_id], 0.0, band, time) for row in rows]
        sizes = [_point(row, lambda record: sent[record.run_id], 0.0, band, size) for row in rows]
        drawn.append((facet, [dataclasses.replace(y, x=x.mid) for x, y in zip(sizes, times, strict=True)]))
    panels = []
    for facet, series in drawn:
        # The front is that of all panels of a setting.
        same = [one for other, found_there in drawn if other.setting == facet.setting for one in found_there]
        edge = front([(one.x[0], one.mid[0]) for one in same])
        guides = (_front(edge),) if len(edge) > 1 else ()
        x = Axis(size.label("bytes over WAN links until target"), (1.0, 1.0), is_log=True)
        y = Axis(time.label(f"{kind_word(groups)}time to target"), (0.0, 1.0))
        panels += [Panel(facet.title, x, y, tuple(series), guides)] if series else []
    notes = _notes(panels, band)
    if len(shown) < len(groups):
        without = len(groups) - len(shown)
        notes.append(f"{without} of {len(groups)} configurations did not reach the target in every run.")
    title = "time to target over bytes until then"
    panels = _sharing_x(_sharing_y(panels, from_zero=True), is_log=True)
    return Figure("pareto", title, "points", tuple(panels), legend_title, tuple(notes))


def _front(edge: Sequence[Point]) -> Guide:
    x, y = zip(*edge, strict=True)
    return Guide("Pareto front", x, y, is_stepped=True)


def step_split(groups: Sequence[Group], band: str, _target: float | None) -> Figure:
    """Return the phases of a mean step, one bar a configuration."""
    found, _ = facets(groups)
    totals = [sum(_phases(record).get(p, 0.0) for p in PHASES) for g in groups for record in g.taken]
    unit = time_unit(totals)
    panels = []
    for facet in found:
        rows = [row for row in facet.rows if any(_phases(record) for group in row.groups for record in group.taken)]
        if not rows:
            continue
        series = [_phase(phase, rows, band, unit) for phase in PHASES]
        x = Axis("", (-0.5, len(rows) - 0.5), categories=tuple(row.label for row in rows))
        ends = [sum(one.mid[index] for one in series) for index in range(len(rows))]
        y = Axis(unit.label(f"{kind_word(groups)}time per step"), padded(ends, from_zero=True))
        panels.append(Panel(facet.title, x, y, tuple(series)))
    notes: tuple[str, ...] = (
        "Bars: mean over ranks, steps and seeds. Communication hidden behind computing is not shown.",
    )
    tops = [panel.y.range[1] for panel in panels]
    if tops and max(tops) <= COMPARABLE * min(tops):
        panels = [dataclasses.replace(p, y=dataclasses.replace(p.y, range=(0.0, max(tops)))) for p in panels]
    elif tops:
        notes = (*notes, "Each panel has a scale of its own.")
    return Figure("step_split", "where a step's time goes", "stack", tuple(panels), "phase", notes)


def _phase(phase: str, rows: Sequence[Row], band: str, unit: Unit) -> Series:
    found = [_point(row, lambda record: _phases(record).get(phase), 0.0, band, unit) for row in rows]
    low, mid, high = (tuple(getattr(one, name)[0] if one.x else 0.0 for one in found) for name in _VALUES)
    places, run_ids = tuple(map(float, range(len(rows)))), tuple(run_id for row in rows for run_id in row.run_ids)
    style, hatch = PHASE_STYLES[phase]
    return Series(phase.replace("_", " "), "", "", places, low, mid, high, style, run_ids, hatch)


def _phases(record: Record) -> dict[str, float]:
    found = (record.summary or {}).get("phase_s") or {}
    return {name: float(value) for name, value in found.items() if is_finite(value)}


def scaling(groups: Sequence[Group], band: str, _target: float | None) -> Figure:
    """Return samples trained on per second over the number of workers."""
    rates = {record.run_id: _samples_per_s(record) for group in groups for record in group.taken}
    found, legend_title = facets(groups, without=("workers",))
    panels = []
    for facet in found:
        series = [one for row in facet.rows if (one := _over_workers(row, rates, band)).x]
        if not series:
            continue
        first = series[0].x[0], series[0].mid[0]
        x_values = [value for one in series for value in one.x]
        guides = (_linear(first, max(x_values)),) if max(x_values) > first[0] else ()
        x = Axis("workers", padded(x_values), ticks=tuple(sorted(set(x_values))))
        y = Axis(f"samples per {kind_word(groups)}second", padded(_values(series), from_zero=True))
        panels.append(Panel(facet.title, x, y, tuple(series), guides))
    notes = _notes(panels, band)
    title = "throughput over workers"
    panels = [dataclasses.replace(p, guides=_cut(p)) for p in _sharing_y(panels, from_zero=True)]
    return Figure("scaling", title, "lines", tuple(panels), legend_title, tuple(notes))


def _cut(panel: Panel) -> tuple[Guide, ...]:
    """Return straight guides that end where they would leave the panel, so that their labels are in it."""
    top, found = panel.y.range[1], []
    for guide in panel.guides:
        (x0, x1), (y0, y1) = guide.x, guide.y
        share = min(1.0, (top - y0) / (y1 - y0)) if y1 > y0 else 1.0
        found.append(dataclasses.replace(guide, x=(x0, x0 + share * (x1 - x0)), y=(y0, y0 + share * (y1 - y0))))
    return tuple(found)


def _linear(first: Point, end: float) -> Guide:
    """Return what the first series would do if each worker added as much as the first ones."""
    return Guide("linear", (first[0], end), (first[1], first[1] * end / first[0]), is_named_below=True)


def _over_workers(row: Row, rates: Mapping[str, float | None], band: str) -> Series:
    by_workers: dict[int, list[Group]] = defaultdict(list)
    for group in row.groups:
        workers = group.properties()["workers"]
        if isinstance(workers, int):
            by_workers[workers].append(group)
    found = []
    for workers, groups in sorted(by_workers.items()):
        of_workers = dataclasses.replace(row, groups=tuple(groups))
        one = _point(of_workers, lambda record: rates[record.run_id], float(workers), band, None)
        found += [one] if one.x else []
    low, mid, high = (tuple(getattr(one, name)[0] for one in found) for name in _VALUES)
    return row_series(row, Band(tuple(one.x[0] for one in found), low, mid, high))


def _samples_per_s(record: Record) -> float | None:
    steps = [event for event in record.of_kind("step") if is_finite(event.get("samples"))]
    end_s = max((event["t_s"] for event in steps), default=0.0)
    return sum(event["samples"] for event in steps) / end_s if end_s > 0 else None


def _point(row: Row, value_of: ValueOf, x: float, band: str, unit: Unit | None) -> Series:
    """Return a series of one point; of none where no run has the value."""
    of_seed: dict[int, list[float]] = defaultdict(list)
    for record in (record for group in row.groups for record in group.taken):
        if (value := value_of(record)) is not None:
            of_seed[seed_of(record)].append(value / (unit.factor if unit else 1.0))
    found = value_band(of_seed, band)
    return row_series(row, Band((x,), *((value,) for value in found)) if found else Band())


def _values(series: Sequence[Series]) -> list[float]:
    return [value for one in series for value in (*one.low, *one.high)]


def _sharing_y(panels: Sequence[Panel], *, from_zero: bool) -> list[Panel]:
    """Return the panels with one range of values, so that they can be compared."""
    shared = padded((value for panel in panels for value in _values(panel.series)), from_zero=from_zero)
    return [dataclasses.replace(panel, y=dataclasses.replace(panel.y, range=shared)) for panel in panels]


def _sharing_x(panels: Sequence[Panel], *, is_log: bool) -> list[Panel]:
    shared = padded((value for panel in panels for one in panel.series for value in one.x), is_log=is_log)
    return [dataclasses.replace(panel, x=dataclasses.replace(panel.x, range=shared)) for panel in panels]


def _notes(panels: Sequence[Panel], band: str) -> list[str]:
    has_band = any(one.has_band for panel in panels for one in panel.series)
    return [f"Point: mean over seeds. Line: {BANDS[band]}."] if has_band else []
