"""`longhaul capture` and `longhaul compose`: hand a run's directory to the analysis, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.core.errors import InputError
from testbed.core.record.run_directory import RUN_ID
from testbed.orchestrator.config.grammar.overrides import unknown
from testbed.orchestrator.machine.clone import environment


def capture(run_id: str, runs_root: Path, *, as_json: bool = False) -> int:
    """Print what the run's capture holds and return the analysis's exit status.

    Raises:
        InputError: there is no such run.
    """
    return _analysis("capture", run_id, runs_root, ["--json"] if as_json else [])


def compose(
    run_id: str,
    runs_root: Path,
    *,
    rate: str | None = None,
    server_rate: str | None = None,
    delay: str | None = None,
    goodput: float | None = None,
    as_json: bool = False,
) -> int:
    """Print the run's rounds as if clients ran side by side and return the analysis's exit status.

    Raises:
        InputError: there is no such run.
    """
    given = {"--rate": rate, "--server-rate": server_rate, "--delay": delay, "--goodput": goodput}
    flags = [f"{flag}={value}" for flag, value in given.items() if value is not None]
    return _analysis("compose", run_id, runs_root, [*flags, *(["--json"] if as_json else [])])


def _analysis(command: str, run_id: str, runs_root: Path, flags: Sequence[str]) -> int:
    known = [path.name for path in runs_root.glob("*") if RUN_ID.fullmatch(path.name)]
    if run_id not in known:
        raise InputError(unknown(f"{command} {run_id}", run_id, known[-5:], "run"))
    words = [sys.executable, "-m", "testbed.analysis", command, *flags, "--", str(runs_root / run_id)]
    return subprocess.run(words, env=environment(), check=False).returncode
