"""`longhaul run` as a script calls it: what it prints is the result and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_FAILED
from testbed.core.record.run_directory import RunDir
from testbed.core.record.summary import summary_faults
from testbed.orchestrator.machine.clone import CLONE, environment
from tests.emulation.support import BUSY, BUSY_PAUSES_S, CONTROLS, END_TIMEOUT_S, assert_as_asked_or_told
from tests.machine import ENDS_WITH_TESTS

SHORT = ("topo=wan100m", "workload=sensors", "workers=2", "steps=4", "evaluate_every=4", "metrics_port=0")
STATUSES = {"valid": 0, "suspect": 0, "invalid": 5}
"""Of a completed run, by its verdict."""
Said = subprocess.CompletedProcess[str]


def _run(runs: Path, *words: str) -> tuple[Said, RunDir]:
    """Make a run without a terminal, though FORCE_COLOR claims one, as in many a CI; again if the machine is busy."""
    command = [*ENDS_WITH_TESTS, sys.executable, "-m", "testbed", "run", "--share", "--runs", str(runs), *SHORT, *words]
    for pause_s in (*BUSY_PAUSES_S, None):
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
        if pause_s is None or done.returncode != EXIT_FAILED or BUSY not in done.stderr:
            break
        time.sleep(pause_s)
        shutil.rmtree(runs)
    assert runs.is_dir(), done.stderr
    (path,) = runs.iterdir()
    return done, RunDir(path)


@pytest.fixture(scope="module")
def quiet(machine_lock: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Said, RunDir]:
    """A quiet run, slowed, whose nodes have a limit to their memory."""
    return _run(tmp_path_factory.mktemp("quiet") / "runs", "--quiet", "dilation=2", "memory_limit={others: 1 GB}")


def test_json_is_the_summary_alone_and_the_display_goes_to_standard_error(tmp_path: Path, machine_lock: None) -> None:
    done, run = _run(tmp_path / "runs", "--json", "dilation=guess")
    printed = json.loads(done.stdout)
    assert printed == json.loads(run.summary.read_text())
    assert summary_faults(printed) == []
    assert (printed["run_id"], printed["status"], printed["steps"]) == (run.run_id, "completed", 4)
    assert done.returncode == STATUSES[printed["verdict"]]
    for stage in (f"run {run.run_id}; metrics at http://", "network: 2 nodes", "training", "ended"):
        assert re.search(rf"^ *\d+\.\d s  {re.escape(stage)}", done.stderr, re.MULTILINE), done.stderr
    assert not CONTROLS.search(done.stdout + done.stderr)


def test_quiet_is_one_line(quiet: tuple[Said, RunDir]) -> None:
    done, run = quiet
    summary = json.loads(run.summary.read_text())
    assert done.stdout == f"{run.run_id} {summary['verdict']} {run.path}\n"
    assert done.stderr == "".join(f"longhaul: {reason}\n" for reason in summary["reasons"])
    assert (summary["status"], done.returncode) == ("completed", STATUSES[summary["verdict"]])


def test_a_slowed_run_reports_emulated_figures(quiet: tuple[Said, RunDir]) -> None:
    _, run = quiet
    summary = json.loads(run.summary.read_text())
    for link in (link for link in summary["links"] if link["wan"]):
        found = {key: link[key]["measured"] for key in ("rate_bit_s", "rtt_s")}
        assert_as_asked_or_told(link, 100e6, 0.067, found, summary["reasons"])
    facts = json.loads(run.provenance.read_text())
    rto_min_us = {node.get("net.ipv4.tcp_rto_min_us") for node in facts["sysctls"].values()}
    assert (rto_min_us, facts["tcp"]["route_rto_min_s"]) in (({"400000"}, None), ({None}, 0.4))
    assert summary["time_s"] < summary["wall_s"] / 2


def test_nodes_within_the_limit_of_their_memory_are_not_held_to_it(quiet: tuple[Said, RunDir]) -> None:
    _, run = quiet
    most = max(event["memory_bytes"] or 0 for event in run.read_events() if event["event"] == "node")
    assert 0 < most < 10**9
