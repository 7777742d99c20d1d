"""DeAR's bell: a row for each ratio of communication to computing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.benchmarks import dear
from experiments.benchmarks.cells import Found, grouped, median, number, table
from testbed.core.units import format_rate


def bell(points: Sequence[Found]) -> str:
    groups = grouped(points, "ratio", "kind")
    marked = {point["asked"]["ratio"] for point in points if point["is_disturbed"]}
    rows = []
    for ratio in dear.RATIOS:
        steps = {kind: median(groups[ratio, kind], "step_s") for kind in dear.KINDS if (ratio, kind) in groups}
        if "dear" not in steps:
            continue
        gains = {kind: steps[kind] / steps["dear"] if kind in steps else None for kind in dear.KINDS}
        bound = dear.ideal_s("overlapped", ratio) / dear.ideal_s("dear", ratio)
        verdicts = sorted({result["verdict"] for kind in steps for result in groups[ratio, kind]})
        rows.append(
            [
                f"{ratio:g}",
                format_rate(groups[ratio, "dear"][0]["rate_bit_s"]),
                *(number(steps.get(kind), ".2f") for kind in dear.KINDS),
                f"{dear.ideal_s('dear', ratio):.2f}",
                f"{bound:.3f}",
                *(number(gains[kind], ".3f") for kind in list(dear.KINDS)[1:]),
                ", ".join(verdicts) + (" (disturbed)" if ratio in marked else ""),
            ]
        )
    heads = (
        *("t_ar / t_bp", "rate", *(f"{kind}, s" for kind in dear.KINDS), "ideal DeAR, s"),
        *("bound", "overlapped / DeAR", "one bucket / DeAR", "after backward / DeAR", "verdicts"),
    )
    return table(heads, rows)


TABLES: dict[str, Callable[[Sequence[Found]], Any]] = {"dear": bell}
