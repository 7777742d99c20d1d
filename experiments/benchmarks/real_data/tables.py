"""The tables of accuracy on published data: one for each workload, a row for each method."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from experiments.benchmarks.real_data import seeds
from experiments.common.tables import Found, spread, table

_HEADS = ("row", "seeds", "metric", "against the baseline, points", "half a point", "dense / payload")


def real_data(points: Sequence[Found]) -> str:
    """Return a table for each workload, its rows by how close they are to the baseline, the best first."""
    return "\n\n".join(
        _workload(workload, [point for point in points if point["asked"]["workload"] == workload])
        for workload in dict.fromkeys(point["asked"]["workload"] for point in points)
    )


def _workload(workload: str, points: Sequence[Found]) -> str:
    rows: dict[str, seeds.Row] = {}
    for point in points:
        rows.setdefault(point["asked"]["row"], {})[point["asked"]["seed"]] = point["result"]
    base = rows.get(seeds.BASE, {})
    refused = {name: row for name, row in rows.items() if any("refused" in result for result in row.values())}
    ranked = sorted(((_mean(row, base), name) for name, row in rows.items() if name not in refused), reverse=True)
    unit = next((result["metric"]["name"] for result in base.values()), "metric").replace("_", " ")
    heads = [unit if head == "metric" else head for head in _HEADS]
    lines = [table(heads, [_cells(name, rows[name], base) for _, name in ranked])]
    lines += [f"- `{name}` is not possible: {next(iter(row.values()))['refused']}" for name, row in refused.items()]
    return f"**{workload}**\n\n" + "\n".join([lines[0], "", *lines[1:]]).rstrip()


def _mean(row: seeds.Row, base: seeds.Row) -> float:
    found = seeds.differences(row, base)
    return statistics.fmean(found) if found else -math.inf


def _cells(name: str, row: seeds.Row, base: seeds.Row) -> list[str]:
    found = seeds.differences(row, base)
    values = [result["metric"]["value"] for result in row.values()]
    lost = sum(value is None for value in values)
    is_share = all(result["higher_is_better"] for result in row.values())
    form, scale = (".2f", 100.0) if is_share else (".3f", 1.0)
    sent = [result["dense_bytes"] / result["sent_bytes"] for result in row.values() if result["sent_bytes"]]
    is_base = name == seeds.BASE
    return [
        "**baseline**" if is_base else f"`{name}`",
        str(len(row)),
        f"diverged {lost} times" if lost else spread(values, form, scale),
        "-" if lost or is_base or not found else spread(found, "+.2f", 100),
        "-" if is_base else seeds.decided(found),
        f"{statistics.fmean(sent):.1f}" if sent else "-",
    ]
