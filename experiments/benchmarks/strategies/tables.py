"""Tables of the strategies: how soon each reaches the target, a table for each workload and topology."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.common.tables import Found, disturbed, number, table


def strategies(points: Sequence[Found]) -> str:
    places = sorted({(point["asked"]["workload"], point["asked"]["topo"]) for point in points})
    sections = []
    for workload, topo in places:
        chosen = [p for p in points if (p["asked"]["workload"], p["asked"]["topo"]) == (workload, topo)]
        rows = map(_row, sorted(chosen, key=_reached_s))
        sections.append(f"**{workload} on {topo}**\n\n{table(_heads(chosen[0]), rows)}")
    return "\n\n".join(sections)


def _reached_s(point: Found) -> float:
    """To sort by: those that never did come last."""
    found = point["result"]["metric"]["time_to_target_s"]
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
