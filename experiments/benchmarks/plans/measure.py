"""How well plans are predicted: eight plans of one model run on each of two networks that no model was fitted to.

The twelve plans that `strategy.plan=auto` finds are put in order before the first step, from layers and links as that
run has measured them; eight of that order are then executed, one a run, replicas alone only once of its four equal
micro-batches. Each network has four regions of a worker each. The first two steps, in which connections begin slowly,
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources, whole_run
from experiments.common.benchmark import Point
from testbed.core.record.run_directory import RunDir

WORKERS, BATCH, STEP_S, STEPS, DILATION = 4, 8, 0.4, 8, 2
WIDENING = "[4,4,4,4,4,4]"
PLACES = {"gcp4": (1, 2, 3, 7, 8, 9, 10, 11), "dtfm-regional4": (1, 2, 3, 4, 8, 9, 10, 11)}
"""In the order predicted. No network was looked at while the model of a step was corrected. That the probe took long
links for slow ones was found by nine runs on gcp4; it was corrected on meshes of 150 and 280 ms."""
_RUN_S = 130


def points(*, quick: bool) -> list[Point]:
    topos = ("gcp4",) if quick else tuple(PLACES)
    return [Point({"topo": topo, "place": place}, _RUN_S) for topo in topos for place in PLACES[topo]]


def depends_on(topo: str, place: int) -> Iterator[Path]:
    """What predicts and what executes."""
    del place
    yield from sources.of_training("hybrid", "bytelm", topo)
    yield from sources.files(
        ["testbed.worker.methods.planner.decision"], ("testbed.worker.methods.planner", "testbed.core.parallelism")
    )


def overrides(topo: str, place: int) -> tuple[str, ...]:
    """The arguments of its run."""
    return (
        *(f"topo={topo}", f"workers={WORKERS}", "workload=bytelm", f"workload.widening={WIDENING}"),
        *(f"batch_size={BATCH}", f"steps={STEPS}", "evaluate_every=1000", "compressor=none"),
        *("strategy=hybrid", "strategy.plan=auto", f"strategy.plan_place={place}"),
        *("device=paced", f"device.step_s={STEP_S:g}", f"dilation={DILATION}"),
    )


def measure(topo: str, place: int) -> dict[str, Any]:
    with whole_run.made(overrides(topo, place), 5 * _RUN_S) as run:
        return {**whole_run.read(run).facts(), **_plan(run)}


def _plan(run: RunDir) -> dict[str, Any]:
    """Which one was chosen, and what both models said of it."""
    chosen = next(event for event in run.read_events() if event["event"] == "chosen_plan")
    return {key: chosen[key] for key in ("pp", "dp", "micro_batch", "cuts", "placement", "predicted_s", "published_s")}
