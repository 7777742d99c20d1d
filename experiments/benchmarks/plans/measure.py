"""How well plans are predicted: plans of one model run on each of three networks that no model was fitted to.

The plans that `strategy.plan=auto` finds of each schedule are put in order before the first step, from layers and links
as that run has measured them; some of that order are then executed, one a run. Each network has four regions of a
worker each. The first two steps, in which connections begin slowly, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources, whole_run
from experiments.common.benchmark import Point
from testbed.core.parallelism.plan import SEARCHED
from testbed.core.record.run_directory import RunDir

WORKERS, BATCH, STEP_S, STEPS = 4, 8, 0.4, 8
WIDENING = "[4,4,4,4,4,4]"
NETWORKS: dict[str, tuple[str, ...]] = {
    "gcp4": ("dilation=2",),
    "dtfm-regional4": ("dilation=4",),
    "full_mesh": ("topo.rate='100 Mbit/s'", "topo.rtt='20 ms'", "dilation=4"),
}
"""By topology, what it is asked for besides. Micro-batches of one sample are many calls, which cores are slow for at 2;
gcp4's round trips bear no more."""
PLACES = (1, 2, 4, 6, 9, 11)
"""Plans that are executed, by their place in the order predicted."""
_RUN_S = 75


def points(*, quick: bool) -> list[Point]:
    topos = ("full_mesh",) if quick else tuple(NETWORKS)
    return [
        Point({"topo": topo, "schedule": schedule, "place": place}, _RUN_S)
        for topo in topos
        for schedule in SEARCHED
        for place in PLACES
    ]


def depends_on(topo: str, schedule: str, place: int) -> Iterator[Path]:
    """Return the files that predict and those that execute."""
    del schedule, place
    yield from sources.of_training("hybrid", "bytelm", topo)
    yield from sources.files(
        ["testbed.worker.methods.planner.decision"], ("testbed.worker.methods.planner", "testbed.core.parallelism")
    )


def overrides(topo: str, schedule: str, place: int) -> tuple[str, ...]:
    """Return the arguments of its run."""
    return (
        *(f"topo={topo}", *NETWORKS[topo], f"workers={WORKERS}"),
        *("workload=bytelm", f"workload.widening={WIDENING}"),
        *(f"batch_size={BATCH}", f"steps={STEPS}", "evaluate_every=1000", "compressor=none"),
        *("strategy=hybrid", "strategy.plan=auto", f"strategy.schedule={schedule}", f"strategy.plan_place={place}"),
        *("device=paced", f"device.step_s={STEP_S:g}"),
    )


def measure(topo: str, schedule: str, place: int) -> dict[str, Any]:
    with whole_run.made(overrides(topo, schedule, place), 5 * _RUN_S) as run:
        return {**whole_run.read(run).facts(), **_plan(run)}


def _plan(run: RunDir) -> dict[str, Any]:
    """Return the plan that was chosen, and what both models said of it."""
    chosen = next(event for event in run.read_events() if event["event"] == "chosen_plan")
    return {key: chosen[key] for key in ("pp", "dp", "micro_batch", "cuts", "placement", "predicted_s", "published_s")}
