"""The dilation that a first run finds, against the smallest at which the same configuration is valid."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from experiments.common.benchmark import Point
from experiments.common.first_try import command
from experiments.common.first_try.drawing import SEED, draw

RUNS_COMMANDS = True
_CONFIGURATIONS = 5
_RATIO = 1.12
_MAX_BAD = 2
"""Dilations in a row that are not valid, after which the scan ends."""
_MAX_SCANNED = 16
_POINT_S = 900.0
depends_on = command.depends_on


def points(*, quick: bool) -> list[Point]:
    drawn = random.Random(SEED).sample(draw(), 1 if quick else _CONFIGURATIONS)
    return [Point({"overrides": " ".join(one.overrides), "seed": SEED}, _POINT_S) for one in drawn]


def measure(overrides: str, seed: int) -> dict[str, Any]:
    """Return the facts of the first run, and `scanned`, those of each smaller dilation that was tried."""
    del seed
    asked = overrides.split()
    first = command.first_run(asked)
    found = first.get("dilation")
    scanned = [] if found is None else scan(found, lambda k: command.first_run([*asked, f"dilation={k:g}"]))
    return {"first": first, "scanned": list(scanned)}


def scan(found: float, run: Callable[[float], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the facts of runs at a falling series of dilations, down to 1 or to two in a row that are not valid."""
    bad, k = 0, found
    for _ in range(_MAX_SCANNED):
        if bad == _MAX_BAD or k <= 1.0:
            return
        k = max(1.0, round(k / _RATIO, 3))
        facts = {**run(k), "dilation": k}
        bad = 0 if command.is_valid(facts) else bad + 1
        yield facts
