"""However a run ends, its record says how, its logs are kept, and within 5 s nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.core.records import summary_faults
from testbed.core.rundir import RunDir
from testbed.orchestrator import cleanup
from testbed.orchestrator.emulation.container import container_name
from tests.emulation.support import Longhaul, gone_within, host_state, listed, run_process, wait_until, whole_events

LONG = ("topo=wan100m", "compressor=topk", "steps=10000", "evaluate_every=10000")


@pytest.fixture
def running(tmp_path: Path, machine_lock: None) -> Iterator[Longhaul]:
    """A run in the middle of its training; whatever the test does, nothing of it is left on the host."""
    before = host_state()
    longhaul = Longhaul(tmp_path / "runs", *LONG)
    longhaul.wait_for_step(2)
    run_id = longhaul.run.run_id
    yield longhaul
    if longhaul.process.poll() is None:
        longhaul.kill_group()
    gone_within(run_id)
    assert host_state() == before
    assert any(event["event"] == "step" for event in whole_events(longhaul.run))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(running: Longhaul, number: signal.Signals) -> None:
    run = running.run
    if number == signal.SIGTERM:
        os.kill(running.process.pid, number)
    else:  # as a terminal does: the whole foreground group
        os.killpg(running.process.pid, number)
    gone_within(run.run_id)
    assert running.wait() == 4
    summary = running.summary()
    assert summary_faults(summary) == []
    assert (summary["status"], summary["verdict"]) == ("interrupted", "invalid")
    assert number.name in summary["reasons"][0]
    assert summary["steps"] >= 1
    assert run.log("oregon-0").exists() and run.orchestrator_log.read_text()


def test_impatience_while_sealing_does_not_spoil_the_record(running: Longhaul) -> None:
    """A second and third Ctrl-C, and a `list` beside it, while the first one's record is being sealed."""
    os.killpg(running.process.pid, signal.SIGINT)
    wait_until((running.run.path / ".summary.json").exists, 60, "the sealing to begin")
    os.killpg(running.process.pid, signal.SIGINT)
    assert '"running"' in listed(running.runs) or running.run.summary.exists()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.process.pid, signal.SIGHUP)
    assert running.wait() == 4
    assert running.summary()["status"] == "interrupted"
    assert (running.run.path / "report.html").exists()


def test_a_signal_while_it_is_built_ends_it_in_order(tmp_path: Path, machine_lock: None) -> None:
    before = host_state()
    longhaul = Longhaul(tmp_path / "runs", *LONG)
    wait_until(lambda: longhaul.runs.exists() and "network:" in longhaul.said, 60, "the network's stage")
    run_id = longhaul.run.run_id
    os.kill(longhaul.process.pid, signal.SIGTERM)
    assert longhaul.wait() == 4
    gone_within(run_id)
    assert longhaul.summary()["status"] == "interrupted"
    assert host_state() == before


@pytest.mark.parametrize("whole_group", [True, False], ids=["group", "supervisor alone"])
def test_kill_9_leaves_nothing_and_the_next_command_seals_it(running: Longhaul, whole_group: bool) -> None:
    run = running.run
    assert cleanup.leftovers(run.run_id), "nothing to clean: the test would prove nothing"
    (os.killpg if whole_group else os.kill)(running.process.pid, signal.SIGKILL)
    running.process.wait()
    gone_within(run.run_id)
    assert not run.summary.exists()
    events = whole_events(run)
    assert '"killed"' in listed(running.runs)
    summary = running.summary()
    assert (summary["status"], summary["verdict"]) == ("killed", "invalid")
    assert summary_faults(summary) == []
    assert summary["steps"] >= 1
    assert whole_events(run) == events, "sealing reads them, and adds nothing"


def test_kill_9_of_the_run_s_own_process_fails_it_and_keeps_its_record(running: Longhaul) -> None:
    run = running.run
    os.kill(run_process(run.run_id), signal.SIGKILL)
    gone_within(run.run_id)
    assert running.wait() == 4
    summary = running.summary()
    assert (summary["status"], summary["verdict"]) == ("failed", "invalid")
    assert summary_faults(summary) == []
    assert summary["reasons"][0].startswith(
        ("the run's own process ended without a word", "the run's own process was ended by")
    )
    assert summary["steps"] >= 1
    assert run.samples.exists() and run.report.exists()
    assert '"failed"' in listed(running.runs)


def _worker(run_id: str, node: str) -> int:
    """The forked one, not the process that keeps its container."""
    group = f"{container_name(run_id, node)}\n"
    (found,) = (
        pid
        for pid in cleanup.processes_of(run_id)
        if b"testbed.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and group in Path(f"/proc/{pid}/cgroup").read_text()
    )
    return found


def test_a_dead_worker_is_named_before_any_collective_times_out(running: Longhaul) -> None:
    run = running.run
    os.kill(_worker(run.run_id, "virginia-1"), signal.SIGKILL)
    gone_within(run.run_id)
    assert running.wait() == 4
    summary = running.summary()
    assert summary["status"] == "failed"
    assert "worker 3 on virginia-1 was ended by SIGKILL" in summary["reasons"][0]


def test_a_dead_zygote_takes_its_workers_along_and_is_named(running: Longhaul) -> None:
    run = running.run
    workers = [_worker(run.run_id, node) for node in ("oregon-0", "virginia-1")]
    (zygote,) = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in workers}
    os.kill(zygote, signal.SIGKILL)
    gone_within(run.run_id)
    assert running.wait() == 4
    assert "the process that workers are forked from was ended by SIGKILL" in running.summary()["reasons"][0]


def test_a_dead_delay_line_is_named(running: Longhaul) -> None:
    run = running.run
    (line,) = [
        pid
        for pid in cleanup.processes_of(run.run_id)
        if b"shapers.delay_line" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(line, signal.SIGKILL)
    gone_within(run.run_id)
    assert running.wait() == 4
    assert "delay line ended" in running.summary()["reasons"][0]


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    assert os.statvfs(path).f_bavail == 0


def test_a_full_disk_fails_the_run_and_keeps_its_record(tmp_path: Path, machine_lock: None) -> None:
    """The disk is a small file system in a mount namespace of the test's own, filled up in mid-training."""
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    make = f"mount -t tmpfs -o size=300m disk {disk}; mkdir {disk}/runs"
    script = f'{make}; "$@"; status=$?; cp -r {disk}/runs {kept}; exit $status'
    longhaul = Longhaul(disk / "runs", *LONG, wrapper=("unshare", "--mount", "bash", "-c", script, "bash"))
    seen = Path(f"/proc/{longhaul.process.pid}/root{disk}")
    wait_until(lambda: (seen / "runs").is_dir(), 60, "the small disk")
    longhaul.runs = seen / "runs"
    longhaul.wait_for_step(2)
    run_id = longhaul.run.run_id
    _fill(seen / "filler")
    assert longhaul.wait() == 4
    gone_within(run_id)
    (record,) = kept.iterdir()
    summary = json.loads((record / "summary.json").read_text())
    assert summary_faults(summary) == []
    assert summary["status"] == "failed"
    assert "No space left" in " ".join(summary["reasons"])
    assert (record / "logs" / "oregon-0.log").exists()
    assert any(event["event"] == "step" for event in whole_events(RunDir(record)))
    assert '"failed"' in listed(kept)
