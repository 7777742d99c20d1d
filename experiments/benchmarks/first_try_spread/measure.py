"""First runs of the same paced configurations, again and again: how far steps differ, and that losses do not."""

from __future__ import annotations

from typing import Any

from experiments.common.benchmark import Point
from experiments.common.first_try import command

RUNS_COMMANDS = True
_CONFIGURATIONS = (
    "topo=wan100m strategy=ddp compressor=none workers=4 workload=digits device=paced device.step_s=0.1 steps=20",
    "topo=us3 strategy=dear compressor=none workers=6 workload=bytelm device=paced device.step_s=0.5 steps=20",
    "topo=ring strategy=ddp compressor=topk workers=8 workload=glyphs device=paced device.step_s=0.5 steps=15",
)
_REPEATS = 5
_POINT_S = 75.0
depends_on = command.depends_on


def points(*, quick: bool) -> list[Point]:
    asked = _CONFIGURATIONS[:1] if quick else _CONFIGURATIONS
    return [
        Point({"overrides": overrides, "repeat": repeat}, _POINT_S)
        for repeat in range(1 if quick else _REPEATS)
        for overrides in asked
    ]


def measure(overrides: str, repeat: int) -> dict[str, Any]:
    """Return the facts of a first run."""
    del repeat
    return command.first_run(overrides.split())
