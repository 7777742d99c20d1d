"""Ranks that torchrun has started, as a user starts them: the record, the same losses, and what goes wrong by name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, EXIT_INPUT
from testbed.core.rundir import RunDir
from testbed.core.spec import RunSpec
from testbed.orchestrator.clone import CLONE
from testbed.orchestrator.config import resolve
from tests.distributed.harness import run as run_in_harness

WORDS = ("topo=lan", "workload=digits", "steps=6", "evaluate_every=3", "seed=3")
LIMIT_S = 240.0


def _free_ports() -> int:
    """The first of two in a row; tests that run beside this one begin elsewhere."""
    for first in range(20000 + os.getpid() % 1000 * 10, 31000, 2):
        with contextlib.suppress(OSError), socket.create_server(("", first)), socket.create_server(("", first + 1)):
            return first
    raise RuntimeError("no two free ports in a row")


def _started(words: Sequence[str], runs: Path, ranks: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    command += ["-m", "testbed.worker", "torchrun", "--port", str(_free_ports()), "--runs", str(runs), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=CLONE, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _ended(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=LIMIT_S)[0]
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _record(runs: Path) -> RunDir:
    (path,) = runs.iterdir()
    return RunDir(path)


def _events(run: RunDir, kind: str) -> list[dict[str, Any]]:
    return [event for event in run.read_events() if event["event"] == kind]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, str]:
    runs = tmp_path_factory.mktemp("cluster")
    process = _started(WORDS, runs)
    said = _ended(process)
    assert process.returncode == EXIT_COMPLETED, said
    return _record(runs), said


def test_a_run_leaves_the_record_of_any_other_and_says_that_it_is_measured(made: tuple[RunDir, str]) -> None:
    run, said = made
    summary = json.loads(run.summary.read_text())
    assert (summary["status"], summary["verdict"], summary["kind"]) == ("completed", "valid", "measured")
    assert summary["steps"] == 6 and summary["bytes"]["payload"] > 0
    assert summary["links"] == [] and summary["bytes"]["wire_total"] is None
    assert any("network between the machines" in text for text in summary["unknowns"])
    assert run.report.exists() and run.samples.exists()
    assert json.loads(run.provenance.read_text())["hosts"] == [socket.gethostname()] * 2
    assert "(measured)" in said and str(run.run_id) in said
    assert not run.lock.exists()


def test_its_losses_are_those_of_the_same_spec_elsewhere(made: tuple[RunDir, str], tmp_path: Path) -> None:
    run, _ = made
    spec = resolve([*WORDS, "workers=2", "dilation=1"]).spec
    assert RunSpec.from_json(json.loads(run.spec.read_text())).topology == spec.topology
    other = run_in_harness(spec, tmp_path)
    assert set(other.status.values()) == {0}, other.logs
    told = (_events(run, "step"), other.of("step"))
    losses = [{(one["rank"], one["step"]): one["loss"] for one in events} for events in told]
    assert losses[0] == losses[1] and len(losses[0]) == 12
    checksums = [{one["parameters_crc32"] for one in events} for events in (_events(run, "done"), other.of("done"))]
    assert checksums[0] == checksums[1] and len(checksums[0]) == 1


def test_all_that_cannot_be_asked_of_machines_that_are_there_is_told_at_once(tmp_path: Path) -> None:
    words = (*WORDS, "workers=5", "dilation=3", "capture=wan", "memory_limit='1 GB'", "checkpoint=last")
    process = _started(words, tmp_path / "runs")
    said = _ended(process)
    assert process.returncode != EXIT_COMPLETED and f"exitcode  : {EXIT_INPUT}" in said
    for fault in ("workers=5: torchrun has started 2", "dilation=3:", "capture:", "memory_limit:", "checkpoint=last:"):
        assert fault in said
    assert not (tmp_path / "runs").exists()


def test_a_rank_that_is_killed_is_named_and_the_record_is_sealed(tmp_path: Path) -> None:
    process = _started(["topo=lan", "workload=digits", "steps=20000"], tmp_path)
    try:
        victim = _pid_of_rank(1, process.pid)
        _until(lambda: any(_events(_record(tmp_path), "step")) if any(tmp_path.iterdir()) else False)
        os.kill(victim, signal.SIGKILL)
    finally:
        said = _ended(process)
    _until(lambda: _record(tmp_path).summary.exists())
    summary = json.loads(_record(tmp_path).summary.read_text())
    assert (summary["status"], summary["verdict"]) == ("failed", "invalid"), said
    (fault,) = _events(_record(tmp_path), "fault")
    assert "worker 1 on " in fault["message"] and socket.gethostname() in fault["message"]
    assert f"exitcode  : {EXIT_FAILED}" in said or "exitcode  : -9" in said


def test_without_torchrun_it_says_how_to_start_it() -> None:
    command = [sys.executable, "-m", "testbed.worker", "torchrun", "workload=digits"]
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
    done = subprocess.run(command, cwd=CLONE, env=environment, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == EXIT_INPUT
    assert "RANK, WORLD_SIZE, MASTER_ADDR: not set; start it as torchrun" in done.stderr


def _pid_of_rank(rank: int, launcher: int) -> int:
    found: list[int] = []

    def look() -> bool:
        text = Path(f"/proc/{launcher}/task/{launcher}/children").read_text()
        for pid in map(int, text.split()):
            with contextlib.suppress(OSError):
                if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text():
                    found.append(pid)
        return bool(found)

    _until(look)
    return found[0]


def _until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come to that"
        time.sleep(0.1)
