"""A worker that a signal stops for some seconds: the run is not `valid`, unless it was to sleep meanwhile anyway."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.orchestrator.emulation.containers.runc_container import container_name
from tests.emulation.support import Longhaul

CGROUPS = Path("/sys/fs/cgroup")


def worker_of(run_id: str, node: str) -> int:
    """Return the process of a node's worker; beside it only the one that waits for it is in its container."""
    name = container_name(run_id, node)
    (file, *_) = (path for path in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")) if (path / "cgroup.procs").exists())
    pids = [int(line) for line in (file / "cgroup.procs").read_text().split()]
    (pid,) = (pid for pid in pids if not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"))
    return pid


def stopped_for(stop_s: float, run: Longhaul, node: str) -> dict[str, Any]:
    pid = worker_of(run.run.run_id, node)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(stop_s)  # what the test is about
    os.kill(pid, signal.SIGCONT)
    run.wait()
    assert any(event["stopped_processes"] for event in run.run.read_events() if event["event"] == "host")
    return run.summary()


@pytest.mark.usefixtures("machine_lock")
@pytest.mark.parametrize("stop_s", [5, 10, 20])
def test_a_run_with_a_frozen_worker_is_not_valid(tmp_path: Path, stop_s: float) -> None:
    run = Longhaul(tmp_path / "runs", "topo=wan1g", "steps=40")
    run.wait_for_step(10)
    summary = stopped_for(stop_s, run, "virginia-1")
    assert summary["verdict"] != "valid"
    assert any("a process of the run was stopped" in reason for reason in summary["reasons"]), summary["reasons"]


@pytest.mark.usefixtures("machine_lock")
def test_a_stop_inside_a_pacing_sleep_does_no_harm(tmp_path: Path) -> None:
    given = ("workers=2", "device=paced", "device.step_s=10", "steps=4", "dilation=1", "compressor=topk")
    run = Longhaul(tmp_path / "runs", "topo=wan1g", *given)
    run.wait_for_step(2)
    summary = stopped_for(2.0, run, "virginia-0")
    assert not any("stopped" in reason for reason in summary["reasons"]), summary["reasons"]
