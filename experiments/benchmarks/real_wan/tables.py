"""Tables of training between continents: what was fitted to one zone, and ratios published, simulated, emulated."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from experiments.benchmarks.real_wan.measure import EACH_ITS_OWN, Reading, local, machine, ratio, round_s
from experiments.benchmarks.real_wan.published import MODELS, PEAK_BIT_S, PLACES, ROUND_SAMPLES, machines
from experiments.common.tables import Found, disturbed, number, table
from testbed.analysis.style.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg

NEAR = 0.10
"""The error that was asked for."""
READINGS = {
    "each stream its rate": EACH_ITS_OWN,
    "and 1.1 Gbit/s a machine": Reading(zone_bit_s=PEAK_BIT_S),
    "one stream's rate for all": Reading(one_stream=True),
}
_MACHINE = ("model", "samples/s of a machine", "beside, s a round", *(f"A-{count}: %" for count in (2, 3, 4, 6, 8)))
_GRANULARITY = ("model", "run", "computing / communication, published", "simulated", "error: %")
_RATIOS = ("model", "run", "machines", "published", *(f"{name}: %" for name in READINGS))
_EMULATED = ("model", "run", "published", "simulated", "emulated", "error: %", "simulator's: %", "k", "verdicts")
_SUMMARY = ("model", "runs", *(f"{name}: within 10 %" for name in READINGS), "median error", "worst")


def real_wan_table(points: Sequence[Found]) -> str:
    """All of it; only emulated ratios need points."""
    parts = [
        f"**Fitted to the runs in one zone**: errors of the rounds that it was fitted to\n\n{_machines()}",
        f"**Ratios, simulated**: published, and the error of each reading\n\n{_ratios()}\n\n{summary()}",
        f"**Computing over communication** in a round\n\n{_granularities()}",
        f"**Ratios, emulated**\n\n{_emulated(points)}",
    ]
    return "\n\n".join(parts)


def _machines() -> str:
    rows = []
    for key, model in MODELS.items():
        found = machine(key)
        errors = [
            number(round_s(key, f"A-{count}") * rate / ROUND_SAMPLES - 1, "+.1f", 100)
            for count, rate in model.local_samples_s.items()
        ]
        rows.append([f"{key}, {model.name}", f"{found.samples_s:.1f}", f"{found.beside_s:.1f}", *errors])
    return table(_MACHINE, rows)


def _ratios() -> str:
    rows = []
    for key, model in MODELS.items():
        for run in (run for run in PLACES if run != local(run)):
            published = model.ratios.get(run)
            found = [ratio(key, run, reading) for reading in READINGS.values()]
            cells = [f"{one:.3f} ({_off(one, published)})" for one in found]
            rows.append([key, run, str(machines(run)), number(published, ".3f"), *cells])
    return table(_RATIOS, rows)


def _off(found: float, published: float | None) -> str:
    return "-" if published is None else f"{(found / published - 1) * 100:+.1f}"


def summary() -> str:
    """Return how many simulated ratios are near the published ones, a row for each model."""
    rows = []
    for key, model in MODELS.items():
        errors = [
            [ratio(key, run, reading) / published - 1 for run, published in model.ratios.items()]
            for reading in READINGS.values()
        ]
        near = [f"{sum(abs(error) <= NEAR for error in of_reading)} of {len(of_reading)}" for of_reading in errors]
        first = [abs(error) for error in errors[0]]
        rows.append([key, str(len(first)), *near, f"{statistics.median(first):.1%}", f"{max(first):.1%}"])
    return table(_SUMMARY, rows)


def _granularities() -> str:
    rows = []
    for key, model in MODELS.items():
        for run, published in model.granularity.items():
            training_s = machine(key).training_s(machines(run))
            found = training_s / (round_s(key, run) - training_s)
            of = f"{run} (fitted to)" if run == local(run) else run
            rows.append([key, of, f"{published:.2f}", f"{found:.2f}", _off(found, published)])
    return table(_GRANULARITY, rows)


def emulated_ratios(points: Sequence[Found]) -> dict[tuple[str, str], float]:
    """Of each model and run beyond one zone, where the zone's own run is there too."""
    return {which: _throughput_ratio(*pair) for which, pair in _pairs(points).items()}


def _pairs(points: Sequence[Found]) -> dict[tuple[str, str], tuple[Found, Found]]:
    """Of a model and run: as many machines in one zone, and the run."""
    made = {(point["asked"]["model"], point["asked"]["case"]): point for point in points}
    return {
        (model, run): (made[model, local(run)], point)
        for (model, run), point in made.items()
        if run != local(run) and (model, local(run)) in made
    }


def _throughput_ratio(base: Found, point: Found) -> float:
    return float(base["result"]["step_s"] / point["result"]["step_s"])


def _emulated(points: Sequence[Found]) -> str:
    rows = []
    for (model, run), (base, point) in _pairs(points).items():
        found = _throughput_ratio(base, point)
        published, simulated = MODELS[model].ratios[run], ratio(model, run)
        verdicts = f"{base['result']['verdict']}, {point['result']['verdict']}"
        rows.append(
            [
                *(model, run + (disturbed(point) or disturbed(base)), f"{published:.3f}", f"{simulated:.3f}"),
                *(f"{found:.3f}", _off(found, published), _off(simulated, found)),
                *(f"{point['result']['dilation']:g}", verdicts),
            ]
        )
    return table(_EMULATED, sorted(rows)) if rows else "None yet."


# Ratios of throughput between continents, predicted over published.

_WINDOW = (0.5, 1.05)
"""Holds every ratio that was published, and each prediction."""


def draw(points: Sequence[Found]) -> str:
    """Simulated hollow, emulated filled, shaded what lies within the error asked for; as an SVG file's text."""
    emulated = emulated_ratios(points)
    with style():
        figure, (axes,) = new_figure(legend_rows=6, width_in=5.6)
        low, high = ([edge * (1 + sign * NEAR) for edge in _WINDOW] for sign in (-1, 1))
        axes.fill_between(_WINDOW, low, high, color="#dddddd", label="within 10 %")
        axes.plot(_WINDOW, _WINDOW, color=OKABE_ITO[7], linewidth=0.8)
        for (key, model), color, marker in zip(MODELS.items(), OKABE_ITO, "os", strict=False):
            look = {"color": color, "marker": marker, "linestyle": ""}
            published = model.ratios
            simulated = [ratio(key, run) for run in published]
            axes.plot(list(published.values()), simulated, markerfacecolor="none", label=f"{key}, simulated", **look)
            of_model = {run: found for (name, run), found in emulated.items() if name == key}
            axes.plot([published[run] for run in of_model], list(of_model.values()), label=f"{key}, emulated", **look)
            _name(axes, {run: (published[run], found) for run, found in of_model.items()})
        axes.set(xlim=_WINDOW, ylim=_WINDOW, xlabel="published throughput over that in one zone", ylabel="predicted")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        legend(axes)
        return standalone(to_svg(figure))


def _name(axes: Axes, runs: dict[str, tuple[float, float]]) -> None:
    for run, (x, y) in runs.items():
        axes.annotate(run, (x, y), textcoords="offset points", xytext=(7, -8), fontsize=8)
