"""A sweep that is killed in mid-run loses nothing: the next call goes on, and makes no completed run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.core.rundir import RUN_ID, RunDir
from testbed.orchestrator.clone import CLONE, environment
from tests.emulation.support import (
    END_TIMEOUT_S,
    ENDS_WITH_TESTS,
    START_TIMEOUT_S,
    gone_within,
    host_state,
    wait_until,
)

WORDS = (
    *("topo=lan", "topo.lan_rate='1 Gbit/s'", "compressor=none,topk", "seed=range(2)", "workers=2", "metrics_port=0"),
    *(
        "workload=digits",
        "steps=12",
        "evaluate_every=6",
        "batch_size=8",
        "device=paced",
        "device.step_s=0.1",
        "dilation=4",
    ),
)


class Sweep:
    """`longhaul sweep ...` as a process in a session of its own; --share, since the test holds the machine lock."""

    def __init__(self, runs: Path) -> None:
        self.output = runs.parent / "output"
        command = [sys.executable, "-m", "testbed", "sweep", "--share", "--runs", str(runs), *WORDS]
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                [*ENDS_WITH_TESTS, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=CLONE,
                env=environment(),
            )

    def wait_until_training(self, run: int, runs: Path) -> RunDir:
        """Until the n-th run of the folder trains."""

        def trains() -> bool:
            assert self.process.poll() is None, f"the sweep ended:\n{self.output.read_text()}"
            there = found(runs)
            return len(there) >= run and any(event["event"] == "step" for event in there[run - 1].read_events())

        wait_until(trains, START_TIMEOUT_S, f"training of run {run}")
        return found(runs)[run - 1]

    def wait(self) -> int:
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise


def found(runs: Path) -> list[RunDir]:
    paths = sorted(runs.iterdir()) if runs.exists() else []
    return [RunDir(path) for path in paths if RUN_ID.fullmatch(path.name)]


def statuses(runs: Path) -> list[str]:
    return [json.loads(run.summary.read_text())["status"] for run in found(runs) if run.summary.exists()]


@pytest.mark.timeout(1800)
def test_a_sweep_goes_on_where_it_was_killed_and_where_it_was_stopped(machine_lock: None, tmp_path: Path) -> None:
    runs, before = tmp_path / "runs", host_state()
    sweep = Sweep(runs)
    killed = sweep.wait_until_training(2, runs)
    os.killpg(sweep.process.pid, signal.SIGKILL)
    sweep.process.wait()
    gone_within(killed.run_id)
    assert statuses(runs) == ["completed"]
    first = found(runs)[0]

    sweep = Sweep(runs)
    stopped = sweep.wait_until_training(3, runs)
    os.killpg(sweep.process.pid, signal.SIGINT)
    assert sweep.wait() == 4
    gone_within(stopped.run_id)
    assert statuses(runs) == ["completed", "killed", "interrupted"]
    assert "stopped by SIGINT" in sweep.output.read_text()

    sweep = Sweep(runs)
    # a busy machine makes runs invalid, which are then made once more
    assert sweep.wait() in (0, 5), sweep.output.read_text()
    assert found(runs)[0].run_id == first.run_id and host_state() == before
    (folder,) = (runs / ".sweeps").iterdir()
    points = json.loads((folder / "results.json").read_text())["points"]
    assert len(points) == 4 and all(point["state"] in ("done", "given up") for point in points)
    by_hash = [json.loads(run.spec.read_text())["hash"] for run in found(runs)]
    completed = [
        json.loads(run.spec.read_text())["hash"]
        for run in found(runs)
        if json.loads(run.summary.read_text())["verdict"] in ("valid", "suspect")
    ]
    assert len(completed) == len(set(completed)), "no run that counts was made again"
    assert {point["hash"] for point in points} == set(by_hash)
    made = len(found(runs))
    again = Sweep(runs)
    assert again.wait() in (0, 5) and len(found(runs)) == made
