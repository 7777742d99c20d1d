"""`longhaul run` as a script calls it: what it prints is the result and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from testbed.core.record.run_directory import RunDir
from testbed.core.record.summary import summary_faults
from testbed.orchestrator.machine.clone import CLONE, environment
from tests.emulation.support import CONTROLS, END_TIMEOUT_S
from tests.machine import ENDS_WITH_TESTS

SHORT = ("topo=wan100m", "workload=sensors", "steps=4", "evaluate_every=4", "metrics_port=0")
STATUSES = {"valid": 0, "suspect": 0, "invalid": 5}
"""Of a completed run, by its verdict."""


def _run(runs: Path, flag: str) -> tuple[subprocess.CompletedProcess[str], RunDir]:
    """Without a terminal, where FORCE_COLOR says that there is one, as in many a CI."""
    command = [*ENDS_WITH_TESTS, sys.executable, "-m", "testbed", "run", "--share", flag, "--runs", str(runs), *SHORT]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=END_TIMEOUT_S,
        cwd=CLONE,
        env={**environment(), "FORCE_COLOR": "1"},
        check=False,
    )
    assert runs.is_dir(), done.stderr
    (path,) = runs.iterdir()
    return done, RunDir(path)


def test_json_is_the_summary_alone_and_the_display_goes_to_standard_error(tmp_path: Path, machine_lock: None) -> None:
    done, run = _run(tmp_path / "runs", "--json")
    printed = json.loads(done.stdout)
    assert printed == json.loads(run.summary.read_text())
    assert summary_faults(printed) == []
    assert (printed["run_id"], printed["status"], printed["steps"]) == (run.run_id, "completed", 4)
    assert done.returncode == STATUSES[printed["verdict"]]
    for stage in (f"run {run.run_id}; metrics at http://", "network: 4 nodes", "training", "ended"):
        assert re.search(rf"^ *\d+\.\d s  {re.escape(stage)}", done.stderr, re.MULTILINE), done.stderr
    assert not CONTROLS.search(done.stdout + done.stderr)


def test_quiet_is_one_line(tmp_path: Path, machine_lock: None) -> None:
    done, run = _run(tmp_path / "runs", "--quiet")
    summary = json.loads(run.summary.read_text())
    assert done.stdout == f"{run.run_id} {summary['verdict']} {run.path}\n"
    assert done.stderr == "".join(f"longhaul: {reason}\n" for reason in summary["reasons"])
    assert (summary["status"], done.returncode) == ("completed", STATUSES[summary["verdict"]])
