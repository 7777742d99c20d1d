"""One point of scaling: the mean step of a run in which nothing is learnt, beside what is predicted for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks.strategies.strategies import of_training
from experiments.common import sources
from experiments.common.harness import FOLDER
from experiments.common.whole_run import perform
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.search.plan import simulated_run as predicted_run
from testbed.orchestrator.search.plan.predict_command import question_of


def depends_on(strategy: str, system: str, benchmark: str) -> Iterator[Path]:
    """What workers do, what is predicted of it, and what was asked for."""
    yield from of_training(strategy, "replay", "lan")
    yield from sources.of_prediction()
    yield from (FOLDER / "weak_scaling" / f"{name}.py" for name in (benchmark, "weak_scaling"))
    yield CLONE / "experiments" / "reproductions" / system / "declaration.py"


def measure(asked: Sequence[str], computed_s: float) -> dict[str, Any]:
    """Returns also `mean_step_s`, over all steps but the first, `computed_s` of it, and `predicted_s`."""
    run = perform(asked)
    each = [statistics.fmean(event["step_s"] for event in ranks.values()) for ranks in run.steps]
    return {
        **run.facts(),
        "mean_step_s": statistics.fmean(each),
        "computed_s": computed_s,
        "predicted_s": float(predicted_run.ask(question_of(tuple(asked)))["step_s"]),
    }
