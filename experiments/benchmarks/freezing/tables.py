"""What freezing costs and saves, over seeds, for each workload."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.benchmarks.freezing.measure import ARMS, BASE, WORKLOADS
from experiments.common.tables import HALF_A_POINT, Found, spread, table, within


def freezing(points: Sequence[Found]) -> str:
    """One row a policy."""
    sections = []
    for workload in WORKLOADS:
        chosen = [point for point in points if point["asked"]["workload"] == workload]
        by_arm = {arm: _by_seed(chosen, arm) for arm in ARMS}
        base = {seed: _value(result) for seed, result in by_arm[BASE].items()}
        heads = ("policy, alpha", "seeds", "accuracy, %", "against none, points", "within half a point")
        saved = ("layers frozen after each epoch", "gradient bytes less, %", "processor time of none's, %")
        rows = [_row(arm, found, base, by_arm[BASE]) for arm, found in by_arm.items() if found]
        if rows:
            sections.append(f"**{workload}**\n\n{table((*heads, *saved), rows)}")
    return "\n\n".join(sections)


def _by_seed(points: Sequence[Found], arm: str) -> dict[int, dict[str, Any]]:
    return {point["asked"]["seed"]: point["result"] for point in points if point["asked"]["arm"] == arm}


def _value(result: dict[str, Any]) -> float:
    return float(result["metric"]["value"])


def _row(
    arm: str, by_seed: dict[int, dict[str, Any]], base: dict[int, float], whole: dict[int, dict[str, Any]]
) -> list[str]:
    results = [by_seed[seed] for seed in sorted(by_seed)]
    differences = [_value(by_seed[seed]) - base[seed] for seed in sorted(by_seed.keys() & base.keys())]
    less = [1 - result["gradient_bytes"] / result["dense_bytes"] for result in results]
    times = [by_seed[seed]["cpu_s"] / whole[seed]["cpu_s"] for seed in sorted(by_seed.keys() & whole.keys())]
    frozen = sorted({", ".join(_layers(result)) or "-" for result in results})
    return [
        arm,
        str(len(results)),
        spread([_value(result) for result in results], ".2f", 100),
        spread(differences, "+.2f", 100) if differences and arm != BASE else "-",
        within(differences, HALF_A_POINT) if differences and arm != BASE else "-",
        "; ".join(frozen),
        f"{100 * statistics.fmean(less):.0f}",
        f"{100 * statistics.fmean(times):.0f}" if times else "-",
    ]


def _layers(result: dict[str, Any]) -> list[str]:
    """After each epoch in which more froze: the epoch's number, and how many."""
    return [f"{one['epoch']}: {one['layers']}" for one in result["frozen"]]
