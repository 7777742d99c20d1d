"""PAD-KFAC against SGD: for each, over seeds, the seconds and steps to the same accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.benchmarks.second_order.measure import BASE, KINDS
from experiments.common.tables import Found, disturbed, number, spread, table


def second_order(points: Sequence[Found]) -> str:
    by_kind = {kind: [p for p in points if p["asked"]["kind"] == kind] for kind in KINDS}
    rows = [_row(kind, found) for kind, found in by_kind.items() if found]
    target = points[0]["result"]["metric"]["target"]
    heads = (
        *("", "seeds", "of steps", f"s to {target:.0%}", "accuracy at the end, %", "step, ms: mean", "median"),
        *("MB over the WAN a step", "k", "verdicts"),
    )
    return table(heads, rows) + "\n\n" + _ratios(by_kind[BASE], target, points)


def _row(kind: str, found: Sequence[Found]) -> list[str]:
    results = [point["result"] for point in sorted(found, key=lambda point: point["asked"]["seed"])]
    reached = [result["metric"]["time_to_target_s"] for result in results]
    marked = "".join(sorted({disturbed(point) for point in found}))
    return [
        kind,
        str(len(results)),
        str(KINDS[kind][1]),
        ", ".join(number(seconds, ".1f") for seconds in reached),
        spread([result["metric"]["value"] for result in results], ".2f", 100),
        number(statistics.fmean(result["mean_step_s"] for result in results), ".0f", 1e3),
        number(statistics.median(result["step_s"] for result in results), ".0f", 1e3),
        number(statistics.fmean(result["wan_bytes"] / result["steps"] for result in results), ".2f", 1e-6),
        " ".join(sorted({f"{result['dilation']:g}" for result in results})),
        ", ".join(sorted({result["verdict"] for result in results})) + marked,
    ]


def _ratios(base: Sequence[Found], target: float, points: Sequence[Found]) -> str:
    """Seed by seed, of whom both reached it."""
    base_s = {point["asked"]["seed"]: point["result"]["metric"]["time_to_target_s"] for point in base}
    said = []
    for kind in KINDS:
        if kind == BASE:
            continue
        found = [
            base_s[point["asked"]["seed"]] / point["result"]["metric"]["time_to_target_s"]
            for point in points
            if point["asked"]["kind"] == kind
            and base_s.get(point["asked"]["seed"])
            and point["result"]["metric"]["time_to_target_s"]
        ]
        if found:
            said.append(f"{kind} reaches {target:.0%} {spread(found, '.2f', 1)}x faster than {BASE}.")
    return " ".join(said)
