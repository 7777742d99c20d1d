"""Figures of one run: what happened second by second and step by step."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from testbed.analysis.figures.methods import even_pieces
from testbed.analysis.figures.points import PHASE_STYLES, PHASES
from testbed.analysis.figures.table import Axis, Figure, Guide, Panel, Series, Unit, metric_unit, padded, time_unit
from testbed.analysis.record.changes import asked_over_time, change_times
from testbed.analysis.record.record import Direction, Point, Record, is_finite, spoken_directions
from testbed.analysis.record.thinning import POINTS_PER_CURVE, thin
from testbed.analysis.style.series_style import INK, Method, SeriesStyle, styles_for
from testbed.core.errors import BROKEN
from testbed.core.spec.topology import Link

_MAX_LINES = 24
"""Number of changes above which they are ticks at the foot of a panel: lines would hide the curves."""
_FLAT = 0.2
"""Share of its target below which a curve would be a flat line if the panel showed the target too."""
_TICK = 0.03
"""Length of such a tick, as a share of the panel's height."""
_LABEL_ROOM = 0.09
"""Smallest distance of two targets that both have a label, as a share of the panel's height."""
Curves = Mapping[str, Sequence[Point]]


def training(record: Record) -> Figure:
    """Return loss (mean and spread over ranks) and the workload's metric over time."""
    rows = []
    for events in record.steps().values():
        losses = [event["loss"] for event in events if is_finite(event["loss"])]
        if losses:
            rows.append((max(event["t_s"] for event in events), min(losses), fmean(losses), max(losses)))
    rows = rows[:: max(1, len(rows) // POINTS_PER_CURVE)]
    unit = time_unit(row[0] for row in rows)
    name = record.metric_name() or "metric"
    metric = metric_unit(name)
    points = [(t_s / unit.factor, value / metric.factor) for t_s, value in record.metric_points()]
    panels = []
    if rows:
        t_s, low, mid, high = (tuple(map(float, column)) for column in zip(*rows, strict=True))
        x = tuple(value / unit.factor for value in t_s)
        loss = Series("mean over ranks", "", "", x, low, mid, high, _only_style(), (record.run_id,))
        panels.append(_panel(record, unit, [loss], Axis("training loss", padded((*low, *high)))))
    if points:
        target = ((record.summary or {}).get("metric") or {}).get("target")
        goal = [(f"target {target / metric.factor:.4g}", target / metric.factor)] if is_finite(target) else []
        span = padded([*(value for _, value in points), *(value for _, value in goal)])
        found = [_curve(record, name, points, _only_style())]
        panels.append(_panel(record, unit, found, Axis(metric.label(name), span), goal))
    return _figure("training", "Loss and metric over time", panels, "Band: lowest to highest of the ranks.")


def step_time(record: Record) -> Figure:
    """Return the phases of each step that is not left out: mean over ranks, stacked where they exclude one another."""
    rows = [(step, _mean_phases(events)) for step, events in record.remaining_steps().items()]
    rows = [(step, phases) for step, phases in rows if phases]
    size = max(1, -(-len(rows) // (POINTS_PER_CURVE // 2)))
    slices = [rows[start : start + size] for start in range(0, len(rows), size)]
    x = tuple(float(one[0][0]) for one in slices)
    means = {
        phase: [fmean(phases.get(phase, 0.0) for _, phases in one) for one in slices]
        for phase in (*PHASES, "communicate")
    }
    totals = [sum(means[phase][index] for phase in PHASES) for index in range(len(slices))]
    unit = time_unit([*totals, *means["communicate"]])
    series = []
    for phase, values in means.items():
        y = tuple(value / unit.factor for value in values)
        style, hatch = PHASE_STYLES.get(phase, (SeriesStyle(INK, "o", (5, 2)), ""))
        label = "communicate (overlapping)" if phase == "communicate" else phase.replace("_", " ")
        series.append(Series(label, "", "", x, y, y, y, style, (record.run_id,), hatch))
    tops = [value / unit.factor for value in (*totals, *means["communicate"])]
    y_axis = Axis(unit.label("time per step"), padded(tops, from_zero=True))
    panels = [Panel("", Axis("step", (x[0], max(x[-1], x[0] + 1))), y_axis, tuple(series))] if slices else []
    return Figure("step_time", "Step time by phase", "area", tuple(panels), "phase")


def _mean_phases(events: list[dict[str, Any]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for event in events:
        for phase, value in (event.get("phase_s") or {}).items():
            if is_finite(value):
                seconds[phase].append(value)
    return {phase: fmean(values) for phase, values in seconds.items()}


def wan_rate(record: Record) -> Figure:
    """Return the rate of every WAN direction between two samples, and its target."""
    sent, wan = record.wan_bytes(), _wan_links(record)
    asked = {(link.name, source): profile.rate_bit_s for link in wan for source, _, profile in link.directions()}
    ways = {(link.name, source): (link.name, source, target) for link in wan for source, target, _ in link.directions()}
    words = spoken_directions([*sent, *ways.values()])
    rates = {words[direction]: _rates(points) for direction, points in sent.items()}
    changed = {words[ways[key]]: points for key, points in asked_over_time(record, "rate_bit_s", asked).items()}
    constant = {words[ways[key]]: value for key, value in asked.items()}
    unit = Unit("Mbit/s", 1e6)
    title = "WAN link use against its target"
    return _against_target(record, "wan_rate", title, "leaving the link", unit, rates, {**constant, **changed})


def _rates(points: Sequence[Point]) -> list[Point]:
    pairs = itertools.pairwise(points)
    return [(t1, (sent1 - sent0) * 8 / (t1 - t0)) for (t0, sent0), (t1, sent1) in pairs if t1 > t0]


def rtt(record: Record) -> Figure:
    """Return the round trips of the probes, queueing included, and their target."""
    asked: dict[str, float | list[Point]] = {}
    for link in _wan_links(record):
        own = {(link.name, source): profile.delay_s for source, _, profile in link.directions()}
        changed = asked_over_time(record, "delay_s", own)
        steps = [changed.get(key, [(0.0, own[key])]) for key in own]
        asked[link.name] = _sum_of_steps(steps) if changed else link.rtt_s
    curves: dict[str, list[Point]] = defaultdict(list)
    for event in record.of_kind("rtt"):
        if is_finite(event["rtt_s"]):
            curves[event["name"]].append((event["t_s"], event["rtt_s"]))
    title = "Round-trip time against its target"
    return _against_target(record, "rtt", title, "round trip", Unit("ms", 1e-3), dict(sorted(curves.items())), asked)


def _wan_links(record: Record) -> tuple[Link, ...]:
    return record.spec.topology.wan_links if record.spec else ()


def _sum_of_steps(curves: list[list[Point]]) -> list[Point]:
    """Return the sum of curves that hold each value until their next point."""
    moved = sorted((t_s, index, place) for index, curve in enumerate(curves) for place, (t_s, _) in enumerate(curve))
    now = [curve[0][1] for curve in curves]
    points: list[Point] = []
    for t_s, index, place in moved:
        now[index] = curves[index][place][1]
        points.append((t_s, sum(now)))
    return points


def lateness(record: Record) -> Figure:
    """Return how late packets left the delay line, beyond their target delay."""
    late: dict[Direction, list[Point]] = defaultdict(list)
    for event in record.of_kind("delay_line"):
        if is_finite(event["late_p99_s"]):
            late[event["name"], event["from"], event["to"]].append((event["t_s"], event["late_p99_s"]))
    words = spoken_directions(late)
    curves = {words[direction]: points for direction, points in sorted(late.items())}
    label = "late, 99th percentile"
    return _against_target(record, "lateness", "Timing error of the delay shaper", label, Unit("ms", 1e-3), curves, {})


def cpu_idle(record: Record) -> Figure:
    """Return the idle share of the machine's cores; a busy machine cannot keep the emulation's times."""
    points = [(e["t_s"], e["cpu_idle_ratio"]) for e in record.of_kind("host") if is_finite(e["cpu_idle_ratio"])]
    curves = {"all cores": points} if points else {}
    return _against_target(record, "cpu_idle", "CPU idle", "CPU idle", Unit("%", 0.01), curves, {}, top=100.0)


def _against_target(
    record: Record,
    kind: str,
    title: str,
    words: str,
    unit: Unit,
    curves: Curves,
    asked: Mapping[str, float | list[Point]],
    top: float | None = None,
) -> Figure:
    """Return curves over time with the target of each: once if it is the same for several, in steps if it changed."""
    curves = {name: points for name, points in curves.items() if points}
    asked = {name: asked[name] for name in curves if name in asked}
    time = time_unit(points[-1][0] for points in curves.values())
    values = [value / unit.factor for points in curves.values() for _, value in points]
    constant = sorted({value / unit.factor for value in asked.values() if not isinstance(value, list)})
    stepped = [value / unit.factor for goal in asked.values() if isinstance(goal, list) for _, value in goal]
    note = None
    if values and constant and not stepped and max(values) < _FLAT * constant[0]:
        note = f"Target: {', '.join(f'{value:.4g}' for value in constant)} {unit.name}, above the panel."
        asked, constant = {}, []
    y = Axis(unit.label(words), (0.0, top) if top else padded([*values, *constant, *stepped], from_zero=True))
    panels = []
    for names in even_pieces(list(curves)):
        styles = _styles(names)
        series = [_curve(record, name, _scaled(thin(curves[name]), time, unit), styles[name]) for name in names]
        goals = [asked[name] for name in names if name in asked]
        levels = sorted({value / unit.factor for value in goals if not isinstance(value, list)})
        panel = _panel(record, time, series, y, named_targets(levels, y.range))
        moved = [
            _guide("" if number else "target, as it changed", _scaled(thin(goal), time, unit), is_named_below=True)
            for number, goal in enumerate(goal for goal in goals if isinstance(goal, list))
        ]
        panels.append(dataclasses.replace(panel, guides=(*panel.guides, *moved)))
    return _figure(kind, title, panels, note)


def _scaled(points: Sequence[Point], time: Unit, unit: Unit) -> list[Point]:
    return [(t_s / time.factor, value / unit.factor) for t_s, value in points]


def _styles(names: Iterable[str]) -> dict[str, SeriesStyle]:
    """Return a style for each name. Links are no methods; as settings of one they are told apart."""
    methods = {name: Method("ddp", "none", name) for name in names}
    found = styles_for(list(methods.values()))
    return {name: found[method] for name, method in methods.items()}


def _only_style() -> SeriesStyle:
    return _styles([""])[""]


def _curve(record: Record, name: str, points: Sequence[Point], style: SeriesStyle) -> Series:
    x, y = zip(*points, strict=True)
    return Series(name, "", "", x, y, y, y, style, (record.run_id,))


def _panel(
    record: Record, unit: Unit, series: Sequence[Series], y: Axis, targets: Iterable[tuple[str, float]] = ()
) -> Panel:
    x = Axis(unit.label("time"), padded((value for one in series for value in one.x), from_zero=True))
    guides = [_guide(label, [(x.range[0], value), (x.range[1], value)]) for label, value in targets]
    return Panel("", x, y, tuple(series), (*guides, *_changes(record, unit, y.range)))


def _changes(record: Record, unit: Unit, height: tuple[float, float]) -> list[Guide]:
    """Return a line for each moment at which something changed, or a tick where there are many."""
    times = [t_s / unit.factor for t_s in change_times(record)]
    is_many = len(times) > _MAX_LINES
    top = height[0] + _TICK * (height[1] - height[0]) if is_many else height[1]
    word = "changes" if is_many else "change"
    return [_guide(word if n == 0 else "", [(t, height[0]), (t, top)]) for n, t in enumerate(times)]


def named_targets(levels: Sequence[float], height: tuple[float, float]) -> list[tuple[str, float]]:
    """Return each of the ascending `levels` with its label, or without one where it would lie over the one before."""
    found: list[tuple[str, float]] = []
    named = -math.inf
    for level in levels:
        has_room = level - named >= _LABEL_ROOM * (height[1] - height[0])
        found.append((f"target {level:.4g}" if has_room else "", level))
        named = level if has_room else named
    return found


def _guide(label: str, points: Sequence[Point], *, is_named_below: bool = False) -> Guide:
    x, y = zip(*points, strict=True)
    return Guide(label, x, y, is_named_below=is_named_below)


def _figure(kind: str, title: str, panels: Sequence[Panel], note: str | None = None) -> Figure:
    return Figure(kind, title, "lines", tuple(panels), "", (note,) if note else ())


_MAKERS: tuple[Callable[[Record], Figure], ...] = (training, step_time, wan_rate, rtt, lateness, cpu_idle)
TITLES = {
    "training": "Loss and metric over time",
    "step_time": "Step time by phase",
    "wan_rate": "WAN link use against its target",
    "rtt": "Round-trip time against its target",
    "lateness": "Timing error of the delay shaper",
    "cpu_idle": "CPU idle",
}


def run_figures(record: Record) -> tuple[list[Figure], dict[str, str]]:
    """Return every figure of a run, and by kind what went wrong with those that a broken record cannot give.

    A figure without panels is one for which the record holds nothing.
    """
    found: list[Figure] = []
    faults: dict[str, str] = {}
    for maker in _MAKERS:
        try:
            found.append(maker(record))
        except BROKEN as error:
            kind = maker.__name__
            found.append(Figure(kind, TITLES[kind], "lines", ()))
            faults[kind] = f"Could not be drawn: {type(error).__name__}: {error}"
    return found, faults
