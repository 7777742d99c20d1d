"""What benchmarks of weak scaling share: more and more workers, each with as many samples.

A point is the mean step of a run in which nothing is learnt, and what is predicted for it. The table has a row for each
way of training and number of workers; efficiency is against the fewest workers, k the dilation.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.tables import Found, disturbed, table
from experiments.common.whole_run import perform
from testbed.orchestrator.search.plan import simulated_run
from testbed.orchestrator.search.plan.predict_command import question_of


def depends_on(strategy: str) -> Iterator[Path]:
    """What workers do, what is predicted of it, and this module."""
    yield from sources.of_training(strategy, "replay", "lan")
    yield from sources.of_prediction()
    yield sources.file(__name__)


def measure(asked: Sequence[str], computed_s: float) -> dict[str, Any]:
    """Returns also `mean_step_s`, over all steps but the first, `computed_s` of it, and `predicted_s`."""
    run = perform(asked)
    each = [statistics.fmean(event["step_s"] for event in ranks.values()) for ranks in run.steps]
    return {
        **run.facts(),
        "mean_step_s": statistics.fmean(each),
        "computed_s": computed_s,
        "predicted_s": float(simulated_run.ask(question_of(tuple(asked)))["step_s"]),
    }


def weak_scaling_table(points: Sequence[Found]) -> str:
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
