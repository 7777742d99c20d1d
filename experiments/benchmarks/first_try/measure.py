"""First runs of drawn configurations, twice without load and once beside a process that keeps half a core busy."""

from __future__ import annotations

import contextlib
from typing import Any

from experiments.common.benchmark import Point
from experiments.common.first_try import command
from experiments.common.first_try.drawing import SEED, draw

RUNS_COMMANDS = True
_POINT_S = 75.0
_REPEATS = 2
depends_on = command.depends_on


def points(*, quick: bool) -> list[Point]:
    if quick:
        shortest = min(draw(), key=lambda one: (one.length.training_s, one.workers))
        return [_point(shortest.overrides, load=False)]
    return [
        *(_point(one.overrides, load=False, repeat=repeat) for repeat in range(_REPEATS) for one in draw()),
        *(_point(one.overrides, load=True) for one in draw()),
    ]


def _point(overrides: tuple[str, ...], *, load: bool, repeat: int = 0) -> Point:
    return Point({"overrides": " ".join(overrides), "load": load, "repeat": repeat, "seed": SEED}, _POINT_S)


def measure(overrides: str, load: bool, repeat: int, seed: int) -> dict[str, Any]:
    """Return the facts of a first run."""
    del repeat, seed
    with command.half_core() if load else contextlib.nullcontext():
        return command.first_run(overrides.split())
