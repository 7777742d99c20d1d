"""Wall time of the drawn first runs in this clone and in another one, given by `--against`, turn by turn."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from experiments.common.benchmark import AGAINST, Point
from experiments.common.first_try import command
from experiments.common.first_try.drawing import SEED, draw
from testbed.core.errors import RunError

RUNS_COMMANDS = True
_POINT_S = 150.0
_REPEATS = 2
depends_on = command.depends_on


def points(*, quick: bool) -> list[Point]:
    drawn = sorted(draw(), key=lambda one: one.length.training_s)[:1] if quick else draw()
    return [
        Point({"overrides": " ".join(one.overrides), "repeat": repeat, "seed": SEED}, _POINT_S)
        for repeat in range(1 if quick else _REPEATS)
        for one in drawn
    ]


def measure(overrides: str, repeat: int, seed: int) -> dict[str, Any]:
    """Return the facts of both: "old", with its "commit", and "new".

    Raises:
        RunError: There is no other clone.
    """
    del repeat, seed
    given = os.environ.get(AGAINST)
    if not given or not (Path(given) / ".venv" / "bin" / "python").exists():
        raise RunError(
            f"--against={given or ''}: must be a clone that `make setup` has set up, to compare this one with"
        )
    head = ["git", "-C", given, "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    old = command.first_run(overrides.split(), clone=Path(given))
    return {"old": {**old, "commit": commit}, "new": command.first_run(overrides.split())}
