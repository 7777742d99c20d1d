"""PAD-KFAC against SGD on `glyphs` over a WAN: how long until the same accuracy, over seeds.

Where the second order can pay: fewer steps are needed, and factors are taken and inverted rarely, so that most steps
send gradients alone. SGD has the best of the learning rates and momenta that were tried, K-FAC its defaults
(docs/reproductions/pad-kfac.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform

WORKERS, TOPOLOGY, WORKLOAD = 4, "wan100m", "glyphs"
SEEDS = (0, 1, 2)
BASE = "SGD"
KINDS = {
    BASE: ("ddp", 240, ("workload.momentum=0.95",)),
    "PAD-KFAC": ("pad_kfac", 140, ("strategy.factor_every=10", "strategy.inverse_every=20")),
}
"""By name: the strategy, how many steps it is given, and what is asked of it beside its defaults."""
_EVALUATE_EVERY = 10
_STEP_S, _START_S = 0.8, 25
"""Of wall time."""


def points(*, quick: bool) -> list[Point]:
    seeds = SEEDS[:1] if quick else SEEDS
    return [
        Point({"kind": kind, "seed": seed, "repeat": seed}, _START_S + steps * _STEP_S)
        for seed in seeds
        for kind, (_, steps, _) in KINDS.items()
    ]


def depends_on(kind: str, seed: int, repeat: int) -> Iterator[Path]:
    del seed, repeat
    yield from sources.of_training(KINDS[kind][0], WORKLOAD, TOPOLOGY)


def measure(kind: str, seed: int, repeat: int) -> dict[str, Any]:
    del repeat
    strategy, steps, asked = KINDS[kind]
    run = perform(
        [
            *(f"strategy={strategy}", f"topo={TOPOLOGY}", f"workload={WORKLOAD}", f"workers={WORKERS}"),
            *(f"seed={seed}", f"steps={steps}", f"evaluate_every={_EVALUATE_EVERY}", *asked),
        ],
        limit_s=4 * (_START_S + steps * _STEP_S),
    )
    return {**run.learnt(), "mean_step_s": run.summary["step_time_s"]["mean"]}
