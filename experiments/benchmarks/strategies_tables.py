"""Tables of the strategies: how soon each reaches the target, a table for each workload and topology."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from experiments.benchmarks.cells import Found, disturbed, number, table

README_WORKLOAD = "digits"
"""Whose tables stand in the README too, with fewer columns."""
_BRIEF = ("s to {}%", "accuracy", "step", "WAN", "verdict")


def strategies(points: Sequence[Found]) -> str:
    places = sorted({(point["asked"]["workload"], point["asked"]["topo"]) for point in points})
    sections = []
    for workload, topo in places:
        chosen = [p for p in points if (p["asked"]["workload"], p["asked"]["topo"]) == (workload, topo)]
        rows = map(_row, sorted(chosen, key=_reached_s))
        sections.append(f"**{workload} on {topo}**\n\n{table(_heads(chosen[0]), rows)}")
    return "\n\n".join(sections)


def brief(points: Sequence[Found]) -> str:
    """One table of `README_WORKLOAD`: a row a strategy, a group of columns for each topology."""
    chosen = [point for point in points if point["asked"]["workload"] == README_WORKLOAD]
    by_place = {(point["asked"]["kind"], point["asked"]["topo"]): point for point in chosen}
    topologies = sorted({topo for _, topo in by_place})
    kinds = sorted({kind for kind, _ in by_place}, key=lambda kind: _reached_s(by_place.get((kind, topologies[0]))))
    rows = [
        [f"`{kind}`", *(cell for topo in topologies for cell in _brief_cells(by_place.get((kind, topo))))]
        for kind in kinds
    ]
    target = number(chosen[0]["result"]["metric"]["target"], ".0f", 100) if chosen else "-"
    heads = [f"{topo}: {what.format(target)}" for topo in topologies for what in _BRIEF]
    return table(("strategy", *heads), rows)


def _brief_cells(point: Found | None) -> list[str]:
    if point is None:
        return ["-"] * len(_BRIEF)
    result = point["result"]
    return [
        number(result["metric"]["time_to_target_s"], ".1f"),
        f"{number(result['metric']['value'], '.1f', 100)}%",
        f"{number(result['mean_step_s'], '.0f', 1e3)} ms",
        f"{number(result['wan_bytes'], '.1f', 1e-6)} MB",
        result["verdict"] + disturbed(point),
    ]


def _reached_s(point: Found | None) -> float:
    """To sort by: those that never did come last."""
    found = None if point is None else point["result"]["metric"]["time_to_target_s"]
    return math.inf if found is None else float(found)


def _heads(point: Found) -> Sequence[str]:
    metric = point["result"]["metric"]
    return (
        *("strategy", f"s to {metric['target']:g}", metric["name"], "step, ms: mean", "median", "time, s"),
        *("payload, MB", "over the WAN, MB", "k", "verdict"),
    )


def _row(point: Found) -> list[str]:
    result = point["result"]
    return [
        point["asked"]["kind"] + disturbed(point),
        number(result["metric"]["time_to_target_s"], ".1f"),
        number(result["metric"]["value"], ".3f"),
        number(result["mean_step_s"], ".0f", 1e3),
        number(result["step_s"], ".0f", 1e3),
        number(result["time_s"], ".1f"),
        number(result["payload_bytes"], ".1f", 1e-6),
        number(result["wan_bytes"], ".1f", 1e-6),
        f"{result['dilation']:g}",
        result["verdict"],
    ]


TABLES: dict[str, Callable[[Sequence[Found]], Any]] = {"strategies": strategies}
