"""The first command of the README, `make experiment TOPO=wan1g`, in this clone as if for the first time."""

from __future__ import annotations

import json
import re
import shutil
import time
from typing import Any

from experiments.common.benchmark import Point
from experiments.common.first_try import command
from experiments.common.whole_run import ended
from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID, RunError
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.machine.clone import RUNS_ROOT

RUNS_COMMANDS = True
_REPEATS = 10
_POINT_S = 100.0
_RUN_ID = re.compile(r"\b\d{8}T\d{6}Z-wan1g-ddp-none-[0-9a-f]{8}\b")
depends_on = command.depends_on


def points(*, quick: bool) -> list[Point]:
    return [Point({"repeat": repeat}, _POINT_S) for repeat in range(1 if quick else _REPEATS)]


def measure(repeat: int) -> dict[str, Any]:
    """Return the facts of the run; `wall_s` is from the command to its end, just after the table.

    Raises:
        MachineError: Another run has the machine for too long.
        RunError: It did not complete.
    """
    del repeat
    command.wait_for_the_machine()
    command.forget()
    started_s = time.monotonic()
    status, said, complaint = ended(["make", "experiment", "TOPO=wan1g"], command.LIMIT_S)
    wall_s = time.monotonic() - started_s
    run_ids = _RUN_ID.findall(said)
    if status not in (EXIT_COMPLETED, EXIT_INVALID) or not run_ids:
        raise RunError(f"make experiment TOPO=wan1g: status {status}: {complaint.strip()[-1000:]}")
    run = RunDir(RUNS_ROOT / run_ids[-1])
    facts = command.facts(json.loads(run.summary.read_text()))
    shutil.rmtree(run.path)
    return {**facts, "wall_s": wall_s}
