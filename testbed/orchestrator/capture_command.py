"""`longhaul capture`: hands a run's directory to the analysis, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed.core.errors import InputError
from testbed.core.rundir import RUN_ID
from testbed.orchestrator.clone import environment
from testbed.orchestrator.overrides import unknown


def capture(run_id: str, runs_root: Path, *, as_json: bool = False) -> int:
    """Print what the run's capture holds and return the analysis's exit status.

    Raises:
        InputError: there is no such run.
    """
    known = [path.name for path in runs_root.glob("*") if RUN_ID.fullmatch(path.name)]
    if run_id not in known:
        raise InputError(unknown(f"capture {run_id}", run_id, known[-5:], "run"))
    flags = ["--json"] if as_json else []
    command = [sys.executable, "-m", "testbed.analysis", "capture", *flags, "--", str(runs_root / run_id)]
    return subprocess.run(command, env=environment(), check=False).returncode
