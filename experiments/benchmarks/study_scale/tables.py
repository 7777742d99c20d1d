"""Tables and figure of the study of scale: a step by kind and number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.benchmarks.study_scale.measure import KINDS, RATES_MBIT_S, WORKERS
from experiments.common.tables import Found, table
from testbed.analysis.style.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg


def _by(points: Sequence[Found]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(p["asked"]["kind"], p["asked"]["workers"]): p["result"] for p in points}


def study_scale(points: Sequence[Found]) -> str:
    found = _by(points)
    sections = []
    for rate in RATES_MBIT_S:
        rows = []
        for kind in KINDS:
            cells = [_cell(found.get((kind, workers)), rate) for workers in WORKERS]
            rows.append([kind, *cells])
        rows.append(["**fastest**", *(_fastest(found, workers, rate) for workers in WORKERS)])
        heads = ("step, s", *(f"{workers} workers" for workers in WORKERS))
        sections.append(f"**Links of {rate:g} Mbit/s**\n\n{table(heads, rows)}")
    return "\n\n".join([*sections, *_refused(points), _outside(points)])


def _cell(result: dict[str, Any] | None, rate: float) -> str:
    if result is None or "by_rate" not in result:
        return "-"
    return f"{result['by_rate'][f'{rate:g}']['step_s']:.3g}"


def _fastest(found: dict[tuple[str, int], dict[str, Any]], workers: int, rate: float) -> str:
    known = {
        kind: found[kind, workers]["by_rate"][f"{rate:g}"]["step_s"]
        for kind in KINDS
        if "by_rate" in found.get((kind, workers), {})
    }
    return min(known, key=lambda kind: known[kind]) if known else "-"


def _refused(points: Sequence[Found]) -> list[str]:
    """Once for each reason."""
    said: dict[str, list[str]] = {}
    for point in points:
        if "refused" in point["result"]:
            asked = f"{point['asked']['kind']} on {point['asked']['workers']}"
            said.setdefault(point["result"]["refused"], []).append(asked)
    return [f"Not simulated: {', '.join(asked)}: {reason}." for reason, asked in said.items()]


def _outside(points: Sequence[Found]) -> str:
    """On how many points the simulator was validated with nothing alike."""
    known = [p for p in points if "by_rate" in p["result"]]
    beyond = [p for p in known if any(one["outside"] for one in p["result"]["by_rate"].values())]
    reasons = sorted(
        {why.split()[0] for p in beyond for one in p["result"]["by_rate"].values() for why in one["outside"]}
    )
    said = f"{len(beyond)} of {len(known)} points lie outside what the simulator was validated on"
    return f"{said}, by {', '.join(reasons)}." if beyond else f"{said}."


def draw(points: Sequence[Found]) -> str:
    """A panel for each rate, as an SVG file's text."""
    found = _by(points)
    with style():
        figure, panels = new_figure(len(RATES_MBIT_S), legend_rows=12)
        for axes, rate in zip(panels, RATES_MBIT_S, strict=True):
            for number, kind in enumerate(KINDS):
                known = [(n, found[kind, n]) for n in WORKERS if "by_rate" in found.get((kind, n), {})]
                if known:
                    steps_s = [result["by_rate"][f"{rate:g}"]["step_s"] for _, result in known]
                    dashes = "-" if number < len(OKABE_ITO) else "--"
                    color = OKABE_ITO[number % len(OKABE_ITO)]
                    axes.plot([n for n, _ in known], steps_s, color=color, linestyle=dashes, label=kind)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.xaxis.set_ticks(WORKERS)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.set(xlabel="workers", title=f"{rate:g} Mbit/s")
        panels[0].set_ylabel("step, s (simulated)")
        legend(panels[0])
        return standalone(to_svg(figure))
