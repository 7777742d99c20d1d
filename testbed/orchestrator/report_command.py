"""`longhaul report`: hands the run directories to the analysis, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.core.errors import raise_input_faults
from testbed.core.rundir import RUN_ID
from testbed.orchestrator.clone import environment
from testbed.orchestrator.overrides import unknown


def report(run_ids: Sequence[str], runs_root: Path, output: Path, *, draw_all: bool = False) -> int:
    """Write one page over the runs and return the analysis's exit status.

    Raises:
        InputError: there is no such run.
    """
    known = [path.name for path in runs_root.glob("*") if RUN_ID.fullmatch(path.name)]
    raise_input_faults(unknown(f"report {i}", i, known[-5:], "run") for i in run_ids if i not in known)
    command = [sys.executable, "-m", "testbed.analysis", "report", "--output", str(output)]
    command += ["--all"] if draw_all else []
    return subprocess.run(
        [*command, "--", *(str(runs_root / i) for i in run_ids)], env=environment(), check=False
    ).returncode
