"""How large batches scale: BERT-large on 4, 8 and 16 workers of one switch, LAMB beside SLAMB, emulated and predicted.

The runs of SLAMB's reproduction (`experiments.reproductions.slamb`), in which more workers are simulated. Tensors and
links are `SCALE` times smaller than those they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import weak_scaling
from experiments.common.benchmark import Point
from experiments.common.papers.slamb import bert_overrides, worker_s

WORKERS = (4, 8, 16)
ARMS = ("SLAMB", "LAMB")
SCALE, DILATION = 32, 3
"""Of all arms and sizes alike."""
_STEPS = 11
"""The first warms connections up; of the others one ends with an average of the parameters, as one in ten does."""
_START_S, _PREDICTION_S = 15, 10
_STEP_S = {"SLAMB": 1.8, "LAMB": 2.8}


def points(*, quick: bool) -> list[Point]:
    chosen = [(WORKERS[0], ARMS[0])] if quick else [(workers, arm) for workers in WORKERS for arm in ARMS]
    return [
        Point({"workers": workers, "arm": arm}, _START_S + _PREDICTION_S + DILATION * _STEPS * _STEP_S[arm])
        for workers, arm in chosen
    ]


def depends_on(workers: int, arm: str) -> Iterator[Path]:
    del workers
    yield from weak_scaling.depends_on(arm.lower())


def measure(workers: int, arm: str) -> dict[str, Any]:
    asked = (*bert_overrides(workers, arm, _STEPS), f"workload.scale={SCALE}", f"dilation={DILATION}")
    return weak_scaling.measure(asked, worker_s())
