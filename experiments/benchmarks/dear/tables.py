"""DeAR's bell drawn: the bound's curve over the ratio of communication to computing, and the points measured."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.benchmarks.dear.measure import KINDS, RATIOS
from experiments.common.papers.dear import BACKWARD_S, STEP_S, ideal_s
from experiments.common.tables import Found, grouped, median, number, table
from testbed.analysis.style.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg
from testbed.core.units import format_rate

_MIN_X, _MAX_X, _CURVE_POINTS = 0.3, 5.0, 200
_TICKS = RATIOS
LOOKS = dict(zip(list(KINDS)[1:], ((OKABE_ITO[0], "o"), (OKABE_ITO[1], "s"), (OKABE_ITO[2], "x")), strict=True))
"""Colour and marker of each baseline."""


def gains(points: Sequence[Found], kind: str) -> list[tuple[float, float]]:
    """(ratio, how many times as fast DeAR is as `kind`), where both were measured; invalid runs are left out."""
    groups = grouped([point for point in points if point["result"]["verdict"] != "invalid"], "ratio", "kind")
    return [
        (ratio, median(groups[ratio, kind], "step_s") / median(groups[ratio, "dear"], "step_s"))
        for ratio in RATIOS
        if (ratio, kind) in groups and (ratio, "dear") in groups
    ]


def bound(kind: str, ratio: float) -> float:
    """Of the gain over `kind`, where communication takes what its bytes take."""
    base_s = ideal_s(kind, ratio)
    if kind != "overlapped":  # forward, backward and all-reduce after one another
        base_s = STEP_S + ratio * BACKWARD_S
    return base_s / ideal_s("dear", ratio)


def draw(points: Sequence[Found]) -> str:
    """As an SVG file's text."""
    with style():
        figure, (axes,) = new_figure(legend_rows=2)
        curve = [_MIN_X * (_MAX_X / _MIN_X) ** (step / _CURVE_POINTS) for step in range(_CURVE_POINTS + 1)]
        named = (
            ("overlapped", "bound over ideal overlap: 1 + 1/(2k) at its peak", "-"),
            ("after backward", "bound over no overlap or one bucket", "--"),
        )
        for kind, label, dashes in named:
            axes.plot(curve, [bound(kind, ratio) for ratio in curve], color=OKABE_ITO[7], linestyle=dashes, label=label)
        for kind, (color, marker) in LOOKS.items():
            found = gains(points, kind)
            if found:
                xs, ys = zip(*found, strict=True)
                axes.plot(xs, ys, color=color, marker=marker, linestyle="", label=f"measured over {kind}")
        axes.set_xscale("log")
        axes.set_xlim(_MIN_X, _MAX_X)
        axes.set_ylim(bottom=0.9)
        axes.set_xticks(_TICKS)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(xlabel="all-reduce / backward (t_ar / t_bp)", ylabel="step / DeAR's step")
        legend(axes)
        return standalone(to_svg(figure))


# DeAR's bell: a row for each ratio of communication to computing.


def bell(points: Sequence[Found]) -> str:
    groups = grouped(points, "ratio", "kind")
    marked = {point["asked"]["ratio"] for point in points if point["is_disturbed"]}
    rows = []
    for ratio in RATIOS:
        steps = {kind: median(groups[ratio, kind], "step_s") for kind in KINDS if (ratio, kind) in groups}
        if "dear" not in steps:
            continue
        gains = {kind: steps[kind] / steps["dear"] if kind in steps else None for kind in KINDS}
        bound = ideal_s("overlapped", ratio) / ideal_s("dear", ratio)
        verdicts = sorted({result["verdict"] for kind in steps for result in groups[ratio, kind]})
        rows.append(
            [
                f"{ratio:g}",
                format_rate(groups[ratio, "dear"][0]["rate_bit_s"]),
                *(number(steps.get(kind), ".2f") for kind in KINDS),
                f"{ideal_s('dear', ratio):.2f}",
                f"{bound:.3f}",
                *(number(gains[kind], ".3f") for kind in list(KINDS)[1:]),
                ", ".join(verdicts) + (" (disturbed)" if ratio in marked else ""),
            ]
        )
    heads = (
        *("t_ar / t_bp", "rate", *(f"{kind}, s" for kind in KINDS), "ideal DeAR, s"),
        *("bound", "overlapped / DeAR", "one bucket / DeAR", "after backward / DeAR", "verdicts"),
    )
    return table(heads, rows)
