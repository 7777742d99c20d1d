"""`longhaul clean RUN_ID...`: removes runs by their id and whatever of theirs still lives."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from testbed.core.errors import RunError, raise_input_faults
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.orchestrator.machine.cleanup import remove_leftovers


def clean(run_ids: Sequence[str], runs_root: Path) -> list[str]:
    """Remove each run's leftovers and directory; return a line for each.

    Raises:
        InputError: an argument is not a run id, or the run is alive; nothing has been removed.
        RunError: something could not be removed.
    """
    raise_input_faults(fault for run_id in run_ids if (fault := _fault(run_id, runs_root)))
    said: list[str] = []
    failures: list[str] = []
    for run_id in dict.fromkeys(run_ids):
        try:
            remaining = remove_leftovers(run_id)
            failures += [f"{run_id}: cannot be removed: {what}" for what in remaining]
            if (runs_root / run_id).exists():
                shutil.rmtree(runs_root / run_id)
            if not remaining:
                said.append(f"{run_id}: removed")
        except OSError as error:
            failures.append(f"{run_id}: cannot be removed: {error}")
    if failures:
        raise RunError(*failures)
    return said


def _fault(run_id: str, runs_root: Path) -> str | None:
    if not RUN_ID.fullmatch(run_id) or "/" in run_id:
        return f"clean {run_id}: takes run ids, never paths; longhaul list names them"
    path = runs_root / run_id
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        return f"clean {run_id}: is not a directory of its own in {runs_root}"
    if RunDir(path).is_alive():
        return f"clean {run_id}: the run is alive; stop it first (Ctrl-C)"
    return None
