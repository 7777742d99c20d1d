"""Ways of distributing K-FAC: a row for each model and rate, and where PAD-KFAC stops being the fastest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.benchmarks.kfac.measure import EMULATED, RATES_GBIT_S, SIMULATED, SIMULATED_MODELS
from experiments.common.papers.kfac import ARMS, FACTOR_ELEMENTS, MODELS
from experiments.common.tables import Found, disturbed, number, table
from testbed.analysis.style.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg

RATIOS = {
    "D / SPD": ("D-KFAC", "SPD-KFAC"),
    "MPD / SPD": ("MPD-KFAC", "SPD-KFAC"),
    "SPD / PAD": ("SPD-KFAC", "PAD-KFAC"),
    "SPD / PAD, gradients": ("SPD-KFAC", "PAD-KFAC, gradients"),
}
"""Above 1: the second is faster."""
Cells = Mapping[tuple[str, float], Mapping[str, Found]]
"""By model and rate, by arm; runs that may not be believed left out."""


def cells(points: Sequence[Found], kind: str) -> Cells:
    found: dict[tuple[str, float], dict[str, Found]] = {}
    for point in points:
        asked = point["asked"]
        if asked["kind"] == kind and point["result"].get("verdict") != "invalid":
            found.setdefault((asked["model"], asked["rate_gbit_s"]), {})[asked["arm"]] = point
    return dict(sorted(found.items(), key=lambda cell: (FACTOR_ELEMENTS[MODELS[cell[0][0]].name], cell[0][1])))


def ratio(by_arm: Mapping[str, Found], name: str) -> float | None:
    slower, faster = RATIOS[name]
    if slower not in by_arm or faster not in by_arm:
        return None
    return float(by_arm[slower]["result"]["step_s"] / by_arm[faster]["result"]["step_s"])


def crossings(points: Sequence[Found], kind: str, name: str) -> dict[str, list[float]]:
    """By model: the rates in Gbit/s at which the ratio is 1, by straight lines between neighbours over log(rate)."""
    found: dict[str, list[float]] = {}
    by_model: dict[str, list[tuple[float, float]]] = {}
    for (model, rate), by_arm in cells(points, kind).items():
        if (value := ratio(by_arm, name)) is not None:
            by_model.setdefault(model, []).append((math.log(rate), value - 1))
    for model, curve in by_model.items():
        found[model] = [
            math.exp(x0 + (x1 - x0) * y0 / (y0 - y1)) for (x0, y0), (x1, y1) in itertools.pairwise(curve) if y0 * y1 < 0
        ]
    return found


def kfac(points: Sequence[Found]) -> str:
    sections = []
    if emulated := cells(points, EMULATED):
        sections.append(f"**Emulated**, in brackets predicted for the same run\n\n{_emulated(emulated)}")
    if simulated := cells(points, SIMULATED):
        sections.append(f"**Simulated**\n\n{_simulated(simulated)}")
        sections += [_crossing(points, name) for name in ("SPD / PAD", "SPD / PAD, gradients")]
    return "\n\n".join(sections)


def _emulated(found: Cells) -> str:
    rows = []
    for (model, rate), by_arm in found.items():
        results = {arm: point["result"] for arm, point in by_arm.items()}
        verdicts = {result["verdict"] for result in results.values()}
        marked = any(disturbed(point) for point in by_arm.values())
        rows.append(
            [
                *(model, f"{rate:g}"),
                *(_step(results.get(arm)) for arm in ARMS),
                *(number(ratio(by_arm, name)) for name in RATIOS),
                " ".join(sorted({f"{result['dilation']:g}" for result in results.values()})),
                ", ".join(sorted(verdicts)) + (" (disturbed)" if marked else ""),
            ]
        )
    return table(("model", "Gbit/s", *(f"{arm}, s" for arm in ARMS), *RATIOS, "k", "verdicts"), rows)


def _step(result: Mapping[str, Any] | None) -> str:
    return "-" if result is None else f"{result['step_s']:.3f} ({result['predicted_s']:.3f})"


def _simulated(found: Cells) -> str:
    rows = []
    for (model, rate), by_arm in found.items():
        steps = {arm: point["result"]["step_s"] for arm, point in by_arm.items()}
        elements = FACTOR_ELEMENTS[MODELS[model].name] / 1e6
        shown = (number(steps.get(arm), ".3f") for arm in ARMS)
        rows.append([model, f"{elements:.0f}", f"{rate:g}", *shown, *(number(ratio(by_arm, name)) for name in RATIOS)])
    return table(("model", "factors, M", "Gbit/s", *(f"{arm}, s" for arm in ARMS), *RATIOS), rows)


def _crossing(points: Sequence[Found], name: str) -> str:
    said = [
        f"{model} at {' and '.join(f'{rate:.2g}' for rate in rates)} Gbit/s"
        if rates
        else f"{model} at none of these rates"
        for model, rates in crossings(points, SIMULATED, name).items()
    ]
    return f"{name} is 1: {', '.join(said)}."


# How many times as fast PAD-KFAC is as SPD-KFAC, drawn over the links' rate, a line for each model.

_LOOKS = {"SPD / PAD": ("-", "o"), "SPD / PAD, gradients": ("--", "s")}
"""Dashes of what is simulated, marker of what is emulated."""


def draw(points: Sequence[Found]) -> str:
    """As an SVG file's text."""
    with style():
        figure, (axes,) = new_figure(legend_rows=4)
        axes.axhline(1.0, color=OKABE_ITO[7], linewidth=0.8)
        for name, (dashes, marker) in _LOOKS.items():
            for color, model in zip(OKABE_ITO, SIMULATED_MODELS, strict=False):
                if curve := _curve(points, SIMULATED, model, name):
                    axes.plot(*zip(*curve, strict=True), color=color, linestyle=dashes, label=f"{model}, {name}")
                if dots := _curve(points, EMULATED, model, name):
                    label = f"{model}, {name}, emulated"
                    axes.plot(*zip(*dots, strict=True), color=color, linestyle="", marker=marker, label=label)
        axes.set_xscale("log")
        axes.set_xticks(RATES_GBIT_S)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(xlabel="each worker's link, Gbit/s", ylabel="SPD-KFAC's step / PAD-KFAC's")
        legend(axes)
        return standalone(to_svg(figure))


def _curve(points: Sequence[Found], kind: str, model: str, name: str) -> list[tuple[float, float]]:
    found = [(rate, ratio(by_arm, name)) for (of, rate), by_arm in cells(points, kind).items() if of == model]
    return [(rate, value) for rate, value in found if value is not None]
