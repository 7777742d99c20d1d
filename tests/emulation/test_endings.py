"""However a run of runc's containers ends, its record says how, its logs are kept, and nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from testbed.core.record.run_directory import RunDir
from testbed.core.record.summary import summary_faults
from tests.emulation.endings import LONG, Endings, worker_process
from tests.emulation.support import Longhaul, gone_within, listed, wait_until, whole_events


class TestEndings(Endings):
    @pytest.mark.tier("slow")
    def test_a_dead_zygote_takes_its_workers_along_and_is_named(self, running: Longhaul) -> None:
        run = running.run
        workers = [worker_process(run.run_id, node) for node in ("oregon-0", "virginia-1")]
        (fork_server,) = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in workers}
        os.kill(fork_server, signal.SIGKILL)
        gone_within(run.run_id)
        assert running.wait() == 4
        assert "the process that workers are forked from was ended by SIGKILL" in running.summary()["reasons"][0]


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
