"""What came of a sweep, handed to the analysis in a process of its own, which writes the sweep's folder."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import LonghaulError, MachineError, RunError
from testbed.orchestrator.executors.executor import FOLDER
from testbed.orchestrator.machine.clone import environment
from testbed.orchestrator.machine.ownership import made_for_caller
from testbed.orchestrator.search.sweep.estimates import Estimate
from testbed.orchestrator.search.sweep.grid import Grid
from testbed.orchestrator.search.sweep.status import RunStatus
from testbed.orchestrator.terminal.terminal import say

TABLES = {"text": "table.txt", "csv": "results.csv", "latex": "table.tex", "json": "results.json"}
"""Files of a sweep's folder that hold its table, by format."""
_TIME_LIMIT_S = 300.0


@contextlib.contextmanager
def beside(ending: LonghaulError | None) -> Iterator[None]:
    """Inside, what came of runs is written.

    Args:
        ending: why no more runs were made; it is raised though nothing can be written either, which is told then.

    Raises:
        LonghaulError: it cannot be written, or `ending`.
    """
    try:
        yield
    except (LonghaulError, OSError) as error:
        found = error if isinstance(error, LonghaulError) else MachineError(f"its results are not written: {error}")
        if ending is None:
            raise found from error
        for fault in found.faults:
            say(fault)
        raise ending from error


def rows(standings: Sequence[RunStatus], estimates: Mapping[str, Estimate] | None = None) -> list[dict[str, Any]]:
    """One for each point, as JSON; points that ask for the same have the same run."""
    found = []
    for one in standings:
        estimate = (estimates or {}).get(one.asked.spec.hash)
        row: dict[str, Any] = {
            "hash": one.asked.spec.hash,
            "strategy": one.asked.spec.strategy.name,
            "compressor": one.asked.spec.compressor.name,
            "state": one.state,
            "run_id": one.run and one.run.run_id,
            "missed": [kept.run_id for kept in one.missed],
        }
        if estimate is not None:
            row |= {"estimate_s": estimate.seconds, "estimate_source": estimate.source}
        found += [{"values": point.plain, **row} for point in one.asked.points]
    return found


def write(grid: Grid, standings: Sequence[RunStatus], runs_root: Path) -> Path:
    """Write the sweep's folder, with the files of `TABLES`, and return it.

    Raises:
        RunError: they cannot be made.
    """
    folder = runs_root / FOLDER / grid.folder
    question = {"name": grid.name, "axes": list(grid.keys), "points": rows(standings)}
    command = [sys.executable, "-m", "testbed.analysis", "sweep", "--runs", str(runs_root), "--output", str(folder)]
    with made_for_caller(runs_root, runs_root / FOLDER):
        try:
            done = subprocess.run(
                command,
                input=json.dumps(question),
                capture_output=True,
                text=True,
                timeout=_TIME_LIMIT_S,
                env=environment(),
                start_new_session=True,  # a Ctrl-C that ended the sweep must not end its table too
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"sweep {grid.name}: its table is not there after {_TIME_LIMIT_S:g} s") from error
        if done.returncode != 0:
            raise RunError(f"sweep {grid.name}: its table cannot be made: {done.stderr.strip()[-1000:]}")
    return folder
