"""How low rank scales: ResNet-18 with factors and at full rank on 4, 16 and 64 workers of one switch, emulated and
predicted.

The runs of Pufferfish's reproduction (`experiments.reproductions.pufferfish`), in which they are simulated. Tensors and
links are `SCALE` times smaller than those they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import weak_scaling
from experiments.common.benchmark import Point
from experiments.common.papers.pufferfish import scaled_overrides, step_s

WORKERS = (4, 16, 64)
ARMS = {"factors": "resnet18-pufferfish", "full rank": "resnet18"}
SCALE = 32
_STEPS = 6
_SECONDS = {4: 30, 16: 45, 64: 140}


def points(*, quick: bool) -> list[Point]:
    sizes = WORKERS[:1] if quick else WORKERS
    return [Point({"workers": workers, "arm": arm}, _SECONDS[workers]) for workers in sizes for arm in ARMS]


def depends_on(workers: int, arm: str) -> Iterator[Path]:
    del workers, arm
    yield from weak_scaling.depends_on("ddp")


def measure(workers: int, arm: str) -> dict[str, Any]:
    model = ARMS[arm]
    asked = (*scaled_overrides(model, workers, _STEPS), f"workload.scale={SCALE}", "dilation=auto")
    return weak_scaling.measure(asked, step_s(model))
