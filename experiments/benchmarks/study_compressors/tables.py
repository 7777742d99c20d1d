"""Tables and figure of the study of compressors: who is fastest in each cell, and who is so without losing accuracy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.benchmarks.learning.tables import BASE
from experiments.benchmarks.study_compressors.measure import (
    BASELINES,
    CODECS,
    NETWORKS,
    RATES_MBIT_S,
    RTTS_MS,
    cell,
)
from experiments.common.benchmark import RESULTS
from experiments.common.tables import HALF_A_POINT, Found, table, within
from testbed.analysis.style.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg

DRAWN = ("none", "none, two_shot", "fp16", "int8", "topk", "powersgd", "dgc", "signsgd")
"""In the figure."""
Steps = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
"""Seconds of a step by member, codec, network and cell."""

_SPEED = {"a core": "as fast as a core", "ten times": "ten times as fast as a core"}


def steps(points: Sequence[Found]) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    return {p["asked"]["compressor"]: p["result"]["step_s"] for p in points if "step_s" in p["result"]}


def accurate() -> set[str]:
    """Those that the benchmark of learning found within half a point of uncompressed accuracy; `none` itself."""
    file = RESULTS / "learning.json"
    by_name: dict[str, dict[int, float]] = {}
    for point in json.loads(file.read_text())["points"] if file.exists() else []:
        value = point["result"]["metric"]["value"]
        by_name.setdefault(point["asked"]["compressor"], {})[point["asked"]["seed"]] = value
    base = by_name.get(BASE, {})
    found = {BASE, *BASELINES}
    for name, values in by_name.items():
        differences = [values[seed] - base[seed] for seed in sorted(values.keys() & base.keys())]
        if differences and within(differences, HALF_A_POINT) == "yes":
            found.add(name)
    return found


def study_compressors(points: Sequence[Found]) -> str:
    found, kept = steps(points), accurate()
    sections = [
        f"**{network}, codecs {_SPEED[codec]}** (fastest of all; fastest that keeps accuracy)\n\n"
        f"{_grid(found, kept, codec, network)}"
        for codec in CODECS
        for network in NETWORKS
    ]
    refused = [f"`{p['asked']['compressor']}` ({p['result']['refused']})" for p in points if "refused" in p["result"]]
    kept_names = ", ".join(f"`{name}`" for name in sorted(kept & found.keys()))
    told = [f"{len(found)} members simulated. Keep accuracy: {kept_names}.", *sections]
    if busy := [f"`{p['asked']['compressor']}`" for p in points if p["is_disturbed"]]:
        told.append(f"Measured while others used the machine, so that codecs may be faster: {', '.join(busy)}.")
    if refused:
        told.append(f"Not simulated: {'; '.join(refused)}.")
    return "\n\n".join(told)


def _grid(found: Steps, kept: set[str], codec: str, network: str) -> str:
    rows = [
        [f"{rtt:g} ms", *(_winners(found, kept, codec, network, cell(rate, rtt)) for rate in RATES_MBIT_S)]
        for rtt in RTTS_MS
    ]
    return table(("round trip", *(f"{rate:g} Mbit/s" for rate in RATES_MBIT_S)), rows)


def _winners(found: Steps, kept: set[str], codec: str, network: str, at: str) -> str:
    """Both winners, and by what factor each beats `none`."""

    def told(names: Sequence[str]) -> str:
        best = min(names, key=lambda name: found[name][codec][network][at])
        factor = found[BASE][codec][network][at] / found[best][codec][network][at]
        return f"{best} {factor:.2f}"

    return f"{told(list(found))}; {told([name for name in found if name in kept])}"


def draw(points: Sequence[Found]) -> str:
    """Steps of some members over the rate, on two regions at the middle round trip; as an SVG file's text."""
    found, rtt = steps(points), RTTS_MS[len(RTTS_MS) // 2]
    codec, network = "a core", NETWORKS[0]
    with style():
        figure, (axes,) = new_figure(legend_rows=3)
        for name, color in zip(DRAWN, OKABE_ITO, strict=False):
            if name in found:
                of_cells = found[name][codec][network]
                axes.plot(RATES_MBIT_S, [of_cells[cell(rate, rtt)] for rate in RATES_MBIT_S], color=color, label=name)
        _axes(axes, f"two regions, {rtt:g} ms")
        axes.set_ylabel("step, s (simulated)")
        legend(axes)
        return standalone(to_svg(figure))


def _axes(axes: Axes, title: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_ticks(RATES_MBIT_S)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set(xlabel="Mbit/s", title=title)
