"""What the reproductions of Pufferfish and Cuttlefish share: `glyphs`, really trained over slow links.

A run's figure is how long all of its steps take; its quality is how accurate the model is by then.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.common.papers.declaration import Trial
from testbed.core.record.run_directory import RunDir

RATE = "100 Mbit/s"
"""At which a ring takes 0.16 s for full gradients."""
STEP_S = 0.045
"""At full rank, of the device: as long as a core of the machine where it was measured took at its better hours. Paced,
since two arms measured at two hours differ by the machine too; factors take less by their FLOPs."""
BUCKET = "256 KiB"
"""A fifth of the gradients: in one bucket they would not overlap with backward, and a strong baseline does."""
DILATION = 5.0
"""At 4, factors, which a core does not compute as much faster as their FLOPs are fewer, were late by 4 % of a step."""
EVALUATE_EVERY = 20
"""At a dilation of 3.5 evaluations every ten steps made phases late: one takes a core 3.4 s."""
WORKERS, STEPS, SEEDS = 4, 300, 3
LAST = 5
"""So many evaluations are averaged: at this learning rate one alone is a point off now and then."""
REFERENCE = "full rank"
SETTING = f"four workers on one switch at {RATE}, `glyphs` really trained, at full rank for {STEPS} steps"
QUALITY_NAME = f"accuracy, mean of the last {LAST}, %"
FULL_RANK_S = 325.0
"""Of wall time, about."""
REWARM = ("transform.rewarm_steps=10",)
"""As the authors' codes do it over 5 of 300 epochs."""


def whole_run_s(run: RunDir) -> float:
    """Emulated seconds from the first step to the end of the last; of a simulated run, of one step."""
    return float(run.read_json(run.summary)["time_s"])


def accuracy_percent(run: RunDir) -> float | None:
    """None where there are fewer evaluations."""
    last = [float(event["value"]) for event in run.read_events() if event["event"] == "evaluation"][-LAST:]
    return 100 * statistics.fmean(last) if len(last) == LAST else None


def trained(case: str, arm: str, overrides: Sequence[str], seed: int, seconds: float, steps: int = STEPS) -> Trial:
    shared = (
        *("topo=lan", f"topo.lan_rate='{RATE}'", f"workers={WORKERS}", "workload=glyphs", f"steps={steps}"),
        *(f"evaluate_every={EVALUATE_EVERY}", "workload.momentum=0.95", f"seed={seed}", f"dilation={DILATION}"),
        *(f"strategy.bucket_size='{BUCKET}'", "device=paced", f"device.step_s={STEP_S}"),
    )
    return Trial(case, arm, "emulated", (*shared, *overrides), seconds)
