"""The table of one training at several dilations."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import RUN_HEADS, Found, grouped, median, percent_off, run_cells, table


def run_dilation(points: Sequence[Found]) -> str:
    groups = grouped(points, "tcp", "k")
    rows = []
    for (tcp, k), results in groups.items():
        base = groups.get((tcp, 1))
        steps = median(results, "step_s")
        same = base is not None and all(result["losses"] == base[0]["losses"] for result in results)
        rows.append(
            [
                tcp,
                f"{k:g}",
                " ".join(f"{result['step_s']:.4f}" for result in results),
                percent_off(steps, median(base, "step_s")) if base else "-",
                "the same" if same else "others",
                *run_cells(results)[1:],
            ]
        )
    return table(("tcp", "k", "step, s, each repeat", "against k=1: %", "losses", *RUN_HEADS[1:]), rows)
