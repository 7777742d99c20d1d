"""The table of how far first runs of the same configuration differ."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.common.tables import Found, grouped, table


def first_try_spread(points: Sequence[Found]) -> str:
    """Return a row for each configuration; steps are the medians of runs, on the emulated clock."""
    rows = []
    for (overrides,), results in grouped(points, "overrides").items():
        steps_s = [result["step_s"] for result in results if result.get("step_s") is not None]
        spread = (max(steps_s) - min(steps_s)) / statistics.median(steps_s) if steps_s else None
        hashes = {result.get("losses_hash") for result in results}
        rows.append(
            [
                f"`{overrides}`",
                str(len(results)),
                ", ".join(sorted({result["verdict"] for result in results})),
                ", ".join(f"{result['dilation']:g}" for result in results if result.get("dilation") is not None),
                f"{statistics.median(steps_s):.4f}" if steps_s else "-",
                "-" if spread is None else f"{100 * spread:.2f}",
                "yes" if len(hashes) == 1 and None not in hashes else "no",
            ]
        )
    heads = ("configuration", "runs", "verdicts", "k", "median step, s", "spread, %", "equal losses")
    return table(heads, rows)
