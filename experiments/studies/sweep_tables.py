"""Tables of the studies' sweeps, from what `keep` kept of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmarks.study_compressors.measure import cell
from experiments.common.tables import table
from testbed.analysis.comparison.cells import MISSING
from testbed.analysis.comparison.groups import BELIEVED
from testbed.core.errors import InputError
from testbed.core.units import format_size, parse_rate_bit_s, parse_time_s
from testbed.orchestrator.machine.clone import CLONE

_SIMULATED = CLONE / "experiments" / "benchmarks" / "results" / "study_compressors.json"
_SCALE = _SIMULATED.with_name("study_scale.json")
_MAX_EMULATED = 64
BASE = "ddp"
"""The strategy that others are held against, run by run of one seed: seeds differ by more than strategies do."""
Row = Mapping[str, Any]


def strategies(found: Mapping[str, Any]) -> str:
    """Of each network its strategies, the first to reach the target on top, those that did not in all runs below."""
    sections = []
    for topo in in_order(found["rows"], "topo"):
        rows = [row for row in found["rows"] if row["axes"]["topo"] == topo]
        rows.sort(key=_by_time)
        cells = [
            [
                row["axes"]["strategy"],
                _outcomes(row),
                _interval(row, "time_to_target_s"),
                _range(times_as_soon(found["points"], topo, row["axes"]["strategy"])),
                _interval(row, "metric_best", 100.0),
                _interval(row, "step_p50_s"),
                format_size(round(sent)) if (sent := mean(row, "wan_bytes")) is not None else MISSING,
            ]
            for row in rows
        ]
        heads = ("strategy", "runs", "to target, s", f"{BASE} / it, by seed", "best, %", "step p50, s", "over the WAN")
        sections.append(f"**{topo}**\n\n{table(heads, cells)}")
    return "\n\n".join([*sections, *_remarks(found)])


def compressors(found: Mapping[str, Any]) -> str:
    """A line for each member, a column for each network: emulated, how many times as fast, and as simulated.

    Raises:
        InputError: nothing was simulated at the sweep's rate and round trip.
    """
    topos = in_order(found["rows"], "topo")
    by_cell = {(row["axes"]["compressor"], row["axes"]["topo"]): row for row in found["rows"]}
    simulated = simulated_s(found["common"])
    lines = []
    for member in in_order(found["rows"], "compressor"):
        cells = [_emulated(by_cell, member, topo, simulated.get((member, topo))) for topo in topos]
        lines.append([f"`{member}`", *cells, _outcomes(*(by_cell.get((member, topo)) for topo in topos))])
    return "\n\n".join([table(("step p50, s", *topos, "runs"), lines), *_remarks(found)])


def scale(found: Mapping[str, Any]) -> str:
    """A line for each kind of training, a column for each number of workers: a step as emulated, and as simulated."""
    sizes = in_order(found["rows"], "workers")
    by_cell = {(kind_of(row), row["axes"]["workers"]): row for row in found["rows"]}
    simulated = simulated_scale_s(found["common"])
    lines = []
    for kind in dict.fromkeys(kind for kind, _ in by_cell):
        cells = [_beside(by_cell.get((kind, size)), simulated.get((kind, int(size)))) for size in sizes]
        lines.append([f"`{kind}`", *cells, _outcomes(*(by_cell.get((kind, size)) for size in sizes))])
    heads = ("step p50, s", *(f"{size} workers" for size in sizes), "runs")
    return "\n\n".join([table(heads, lines), *_remarks(found)])


def kind_of(row: Row) -> str:
    """As the simulated study names it: "topk, hierarchical"."""
    collective = row["axes"]["strategy.collective"]
    return row["axes"]["compressor"] + ("" if collective == "gloo" else f", {collective}")


def _beside(row: Row | None, simulated_s: float | None) -> str:
    if row is None or mean(row, "step_p50_s") is None:
        return MISSING
    said = _interval(row, "step_p50_s")
    return said if simulated_s is None else f"{said} (simulated {simulated_s:.3f})"


def simulated_scale_s(common: Mapping[str, str]) -> dict[tuple[str, int], float]:
    """By kind and number of workers, at the sweep's rate, of as many workers as are emulated at most."""
    rate = f"{parse_rate_bit_s(common['topo.rate']) / 1e6:g}"
    return {
        (asked["kind"], asked["workers"]): point["result"]["by_rate"][rate]["step_s"]
        for point in json.loads(_SCALE.read_text())["points"]
        if rate in point["result"].get("by_rate", {}) and (asked := point["asked"])["workers"] <= _MAX_EMULATED
    }


def _emulated(by_cell: Mapping[tuple[str, str], Row], member: str, topo: str, simulated_s: float | None) -> str:
    row, dense = by_cell.get((member, topo)), by_cell.get(("none", topo))
    step_s = row and mean(row, "step_p50_s")
    if not row or step_s is None:
        return MISSING
    said = _interval(row, "step_p50_s")
    if dense and (dense_s := mean(dense, "step_p50_s")) is not None:
        said += f", {dense_s / step_s:.2f} times"
    return said if simulated_s is None else f"{said} (simulated {simulated_s:.3f})"


def simulated_s(common: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Steps of the same cell of the grid with codecs as fast as a core, by member and network.

    Args:
        common: values of all points of the sweep, its links' among them.

    Raises:
        InputError: the grid has no such cell, or the points share no rate or no round trip.
    """
    rate, rtt = (common.get(key) for key in ("topo.rate", "topo.rtt"))
    if rate is None or rtt is None:
        raise InputError(f"the sweep's points share topo.rate {rate} and topo.rtt {rtt}: both are wanted")
    wanted = cell(parse_rate_bit_s(rate) / 1e6, parse_time_s(rtt) * 1e3)
    found = {
        (point["asked"]["compressor"], topo): cells
        for point in json.loads(_SIMULATED.read_text())["points"]
        for topo, cells in point["result"].get("step_s", {}).get("a core", {}).items()
    }
    if lacking := sorted({key for cells in found.values() if wanted not in cells for key in cells}):
        raise InputError(f"the sweep's links are {rate}, {rtt}: {wanted} is no cell of {', '.join(lacking)}, simulated")
    return {key: cells[wanted] for key, cells in found.items()}


def to_target_s(points: Sequence[Mapping[str, Any]], topo: str, strategy: str) -> dict[int, float | None]:
    """By seed, of runs that may be believed; None where the target was not reached."""
    asked = {"topo": topo, "strategy": strategy}
    return {
        point["values"]["seed"]: point["time_to_target_s"]
        for point in points
        if asked.items() <= point["values"].items() and point["outcome"] in BELIEVED
    }


def times_as_soon(points: Sequence[Mapping[str, Any]], topo: str, strategy: str) -> list[float]:
    """Of each seed of which both reached the target: how many times as soon as `ddp` it did."""
    base = to_target_s(points, topo, BASE)
    pairs = [(base.get(seed), time_s) for seed, time_s in to_target_s(points, topo, strategy).items()]
    return [base_s / time_s for base_s, time_s in pairs if base_s is not None and time_s is not None]


def _by_time(row: Row) -> tuple[bool, float, str]:
    value = row["values"]["time_to_target_s"]
    always = value is not None and value["runs"] == len(row["run_ids"])
    return not always, float("inf") if value is None else value["mean"], row["axes"]["strategy"]


def _range(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    least, most = f"{min(values):.2f}", f"{max(values):.2f}"
    return least if least == most else f"{least} to {most}"


def in_order(rows: Sequence[Row], axis: str) -> list[str]:
    """The values of an axis, as the sweep has them."""
    return list(dict.fromkeys(row["axes"][axis] for row in rows))


def mean(row: Row, measure: str) -> float | None:
    """Over seeds; None where no run has a value."""
    value = row["values"][measure]
    return None if value is None else float(value["mean"])


def _interval(row: Row, measure: str, scale: float = 1.0) -> str:
    value = row["values"][measure]
    if value is None:
        return MISSING
    said = f"{value['mean'] * scale:.4g}"
    if value["high"] is not None:
        said += f" ± {(value['high'] - value['mean']) * scale:.2g}"
    return said if value["runs"] == len(row["run_ids"]) else f"{said} ({value['runs']} of {len(row['run_ids'])} runs)"


def _outcomes(*rows: Row | None) -> str:
    """Of all of them together."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update({} if row is None else row["outcomes"])
    return ", ".join(f"{count} {outcome}" for outcome, count in found.items())


def _remarks(found: Mapping[str, Any]) -> list[str]:
    made = sum(point["run_id"] is not None for point in found["points"])
    common = ", ".join(f"{key} {value}" for key, value in found["common"].items())
    text = f"{made} of {len(found['points'])} runs are there; {common}. Mean ± half the {found['interval']}."
    return [f"{text} Code {found['code_hash']}."]
