"""The figures of one run. Each takes a record and returns an SVG, or None where the record holds nothing to draw."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from testbed.analysis.record.record import Direction, Point, Record, is_finite, spoken_directions
from testbed.analysis.report.changes import asked_over_time, mark
from testbed.analysis.style.chart import OKABE_ITO, POINTS_PER_CURVE, draw, legend, new_figure, style, thin, to_svg
from testbed.core.spec.topology import Link

STACKED_PHASES = ("forward", "backward", "compress", "decompress", "optimizer", "exposed_communication")
"""These do not overlap one another; `communicate` runs beside backward and is drawn as a line."""
_PHASE_COLORS = dict(
    zip(STACKED_PHASES, ("#56B4E9", "#0072B2", "#F0E442", "#E69F00", "#009E73", "#D55E00"), strict=True)
)


def training(record: Record) -> str | None:
    """Loss (mean and spread over ranks) and the workload's metric over time."""
    curves = []
    for events in record.steps().values():
        losses = [event["loss"] for event in events if is_finite(event["loss"])]
        if losses:
            curves.append((max(event["t_s"] for event in events), fmean(losses), min(losses), max(losses)))
    metric = record.metric_points()
    if not curves and not metric:
        return None
    figure, (left, right) = new_figure(2)
    draw(left, [(t_s, mean) for t_s, mean, _, _ in curves], "mean over ranks", OKABE_ITO[0])
    kept = curves[:: max(1, len(curves) // POINTS_PER_CURVE)]
    left.fill_between(
        [row[0] for row in kept], [row[2] for row in kept], [row[3] for row in kept], alpha=0.2, color=OKABE_ITO[0]
    )
    left.set(xlabel="time (s)", ylabel="training loss")
    draw(right, metric, record.metric_name() or "metric", OKABE_ITO[4])
    target = ((record.summary or {}).get("metric") or {}).get("target")
    if is_finite(target):
        right.axhline(target, color="#000000", linestyle="--", linewidth=1, label="target")
    right.set(xlabel="time (s)", ylabel=record.metric_name() or "metric")
    mark(left, record)
    mark(right, record)
    legend(left)
    legend(right)
    return to_svg(figure)


def step_time(record: Record) -> str | None:
    """Where a step's time goes: mean over ranks, phases that exclude one another stacked; of steps not left out."""
    rows = [(step, _mean_phases(events)) for step, events in record.remaining_steps().items()]
    rows = [(step, phases) for step, phases in rows if phases]
    if not rows:
        return None
    size = -(-len(rows) // (POINTS_PER_CURVE // 2))
    stretches = [rows[start : start + size] for start in range(0, len(rows), size)]
    steps = [stretch[0][0] for stretch in stretches]
    stacked = {
        phase: [fmean(phases.get(phase, 0.0) for _, phases in stretch) for stretch in stretches]
        for phase in STACKED_PHASES
    }
    figure, (axes,) = new_figure()
    colors = [_PHASE_COLORS[phase] for phase in STACKED_PHASES]
    labels = [phase.replace("_", " ") for phase in STACKED_PHASES]
    axes.stackplot(steps, *stacked.values(), labels=labels, colors=colors, linewidth=0)
    communicate = [fmean(phases.get("communicate", 0.0) for _, phases in stretch) for stretch in stretches]
    axes.plot(steps, communicate, color="#000000", linestyle="--", label="communicate (overlapping)")
    axes.set(xlabel="step", ylabel="s per step")
    legend(axes)
    return to_svg(figure)


def _mean_phases(events: list[dict[str, Any]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for event in events:
        for phase, value in (event.get("phase_s") or {}).items():
            if is_finite(value):
                seconds[phase].append(value)
    return {phase: fmean(values) for phase, values in seconds.items()}


def wan_use(record: Record) -> str | None:
    """Rate of every WAN direction between two samples, and the rate asked."""
    sent, wan = record.wan_bytes(), _wan_links(record)
    asked = {(link.name, source): profile.rate_bit_s for link in wan for source, _, profile in link.directions()}
    ways = {(link.name, source): (link.name, source, target) for link in wan for source, target, _ in link.directions()}
    words = spoken_directions([*sent, *ways.values()])
    rates = {
        words[direction]: [
            (after[0], (after[1] - before[1]) * 8 / (after[0] - before[0]))
            for before, after in itertools.pairwise(points)
            if after[0] > before[0]
        ]
        for direction, points in sent.items()
    }
    changed = {words[ways[key]]: points for key, points in asked_over_time(record, "rate_bit_s", asked).items()}
    constant = {words[ways[key]]: value for key, value in asked.items()}
    return _curves_against_asked(record, rates, {**constant, **changed}, 1e-6, "leaving the link (Mbit/s)")


def rtt(record: Record) -> str | None:
    """Round trips of the probes, queueing included, and the RTT asked."""
    asked: dict[str, float | list[Point]] = {}
    for link in _wan_links(record):
        own = {(link.name, source): profile.delay_s for source, _, profile in link.directions()}
        changed = asked_over_time(record, "delay_s", own)
        asked[link.name] = (
            _sum_of_steps([changed.get(key, [(0.0, own[key])]) for key in own]) if changed else link.rtt_s
        )
    curves: dict[str, list[Point]] = defaultdict(list)
    for event in record.of_kind("rtt"):
        if is_finite(event["rtt_s"]):
            curves[event["name"]].append((event["t_s"], event["rtt_s"]))
    return _curves_against_asked(record, dict(sorted(curves.items())), asked, 1e3, "probe's RTT (ms)")


def _wan_links(record: Record) -> tuple[Link, ...]:
    return record.spec.topology.wan_links if record.spec else ()


def _sum_of_steps(curves: list[list[Point]]) -> list[Point]:
    """The sum of curves that hold each value until their next point."""
    moved = sorted((t_s, index, place) for index, curve in enumerate(curves) for place, (t_s, _) in enumerate(curve))
    now = [curve[0][1] for curve in curves]
    points: list[Point] = []
    for t_s, index, place in moved:
        now[index] = curves[index][place][1]
        points.append((t_s, sum(now)))
    return points


def lateness(record: Record) -> str | None:
    """How late packets left the delay line, beyond the delay asked."""
    late: dict[Direction, list[Point]] = defaultdict(list)
    for event in record.of_kind("delay_line"):
        if is_finite(event["late_p99_s"]):
            late[event["name"], event["from"], event["to"]].append((event["t_s"], event["late_p99_s"]))
    words = spoken_directions(late)
    curves = {words[direction]: points for direction, points in sorted(late.items())}
    return _curves_against_asked(record, curves, {}, 1e3, "late, 99th percentile (ms)")


def cpu_idle(record: Record) -> str | None:
    """Idle share of the machine's cores; a busy machine cannot keep the emulation's times."""
    points = [(e["t_s"], e["cpu_idle_ratio"]) for e in record.of_kind("host") if is_finite(e["cpu_idle_ratio"])]
    return _curves_against_asked(record, {"all cores": points} if points else {}, {}, 100, "CPU idle (%)", top=100)


def _curves_against_asked(
    record: Record,
    curves: dict[str, list[Point]],
    asked: Mapping[str, float | list[Point]],
    scale: float,
    ylabel: str,
    top: float | None = None,
) -> str | None:
    """One colour a curve; what was asked of it dashed: once if it is the same for several, in steps if it changed."""
    if not any(curves.values()):
        return None
    figure, (axes,) = new_figure()
    for index, (name, points) in enumerate(curves.items()):
        draw(axes, points, name, OKABE_ITO[index % len(OKABE_ITO)], scale)
    wanted = [asked[name] for name in curves if name in asked]
    for value in sorted({value for value in wanted if not isinstance(value, list)}):
        axes.axhline(value * scale, color="#000000", linestyle="--", linewidth=1, label=f"asked {value * scale:.4g}")
    for number, points in enumerate(value for value in wanted if isinstance(value, list)):
        steps = [(t_s, value * scale) for t_s, value in thin(points)]
        label = "asked, as it changed" if number == 0 else None
        axes.plot(*zip(*steps, strict=True), color="#000000", linestyle="--", linewidth=1, label=label)
    mark(axes, record)
    axes.set(xlabel="time (s)", ylabel=ylabel)
    axes.set_ylim(bottom=0, top=top)
    legend(axes)
    return to_svg(figure)


FIGURES: dict[str, Callable[[Record], str | None]] = {
    "Loss and metric over time": training,
    "Step time by phase": step_time,
    "WAN link use against the rate asked": wan_use,
    "Round-trip time against the one asked": rtt,
    "Lateness of the delay line": lateness,
    "CPU idle": cpu_idle,
}


def draw_all(record: Record) -> tuple[dict[str, str | None], dict[str, str]]:
    """Every figure by title, and what went wrong with those that could not be drawn from a broken record."""
    drawn: dict[str, str | None] = {}
    faults: dict[str, str] = {}
    with style():
        for title, figure in FIGURES.items():
            try:
                drawn[title] = figure(record)
            except (KeyError, TypeError, ValueError) as error:
                drawn[title] = None
                faults[title] = f"Could not be drawn: {type(error).__name__}: {error}"
    return drawn, faults
