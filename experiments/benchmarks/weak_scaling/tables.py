"""Steps on more and more workers, each with as many samples: a row for each way of training and number of workers.

Efficiency is against the fewest workers; k the dilation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.common.tables import Found, disturbed, table


def weak_scaling(points: Sequence[Found]) -> str:
    rows = []
    fewest = {}
    for point in sorted(points, key=lambda one: (one["asked"]["arm"], one["asked"]["workers"])):
        asked, result = point["asked"], point["result"]
        first = fewest.setdefault(asked["arm"], result["mean_step_s"])
        rows.append(
            [
                *(asked["arm"], str(asked["workers"])),
                f"{result['mean_step_s']:.4g} ({result['predicted_s']:.4g})",
                f"{100 * result['computed_s'] / result['mean_step_s']:.0f} %",
                f"{100 * first / result['mean_step_s']:.0f} %",
                f"{result['dilation']:g}",
                result["verdict"] + disturbed(point),
            ]
        )
    heads = (
        "",
        "workers",
        "mean step, s (predicted)",
        "of it computing",
        "of the fewest workers' rate",
        "k",
        "verdict",
    )
    return table(heads, rows)


TABLES: dict[str, Callable[[Sequence[Found]], str]] = {"large_batch": weak_scaling, "low_rank": weak_scaling}
