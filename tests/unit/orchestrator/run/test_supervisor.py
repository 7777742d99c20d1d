"""What comes before a run and after it, without the run: signals, and files that cannot be written."""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import Interrupted, MachineError
from testbed.core.processes import end_with
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.machine.signals import SAYS_WHERE, Stop
from testbed.orchestrator.run import supervisor as module
from testbed.orchestrator.run.dilation import restart
from testbed.orchestrator.run.supervisor import supervise
from tests.unit.orchestrator.supervised import shared_machine, stand_ins

SPEC = ("topo=lan", "workers=2", "steps=4", "metrics_port=0")


def test_a_stop_inside_another_takes_nothing_away_from_it() -> None:
    with Stop() as outer:
        outer.heed()
        with Stop() as inner:
            os.kill(os.getpid(), signal.SIGINT)
            assert inner.asked == outer.asked == signal.SIGINT
        os.kill(os.getpid(), signal.SIGTERM)
        with Stop() as later:
            assert later.asked == signal.SIGINT, "it was asked before this one was there"
        assert outer.signals == [signal.SIGINT, signal.SIGTERM] and inner.signals == [signal.SIGINT]
        with pytest.raises(Interrupted, match="stopped by SIGINT"):
            outer.heed()
    with Stop() as another:
        assert another.asked is None


def test_a_full_disk_is_told_with_what_is_not_written(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, data: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stand_ins(monkeypatch, tmp_path)
    monkeypatch.setattr(restart, "write_json", write)
    with pytest.raises(MachineError) as raised:
        supervise(compose(SPEC), runs_root=runs, quiet=True, machine=shared_machine())
    (folder,) = runs.iterdir()
    assert str(folder) in str(raised.value) and "No space left on device" in str(raised.value)


def test_a_folder_that_takes_no_run_is_no_fault_of_one(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_ins(monkeypatch, tmp_path)
    (runs / "file").touch()
    with pytest.raises(MachineError, match="no run directory can be made there"):
        supervise(compose(SPEC), runs_root=runs / "file", quiet=True, machine=shared_machine())


def test_a_run_that_is_to_be_slower_is_made_once_more_in_its_directory(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    performed: list[tuple[float, str | None]] = []

    def perform(run: RunDir, *given: Any, **_: object) -> tuple[str, list[str]]:
        performed.append((run.read_json(run.spec)["dilation"], given[3].get("restart")))
        run.events.write_text(f"attempt {len(performed)}")
        return "completed", []

    stand_ins(monkeypatch, tmp_path)
    left = {"process 7"}

    def remove(run_id: str) -> list[str]:
        shutil.rmtree(RunDir(Path(run_id)).runtime)
        return [left.pop()] if left else []

    monkeypatch.setattr(restart, "remove_leftovers", remove)
    monkeypatch.setattr(module, "_perform", perform)
    sealed: list[list[str]] = []
    seal = module.seal

    def noted(run: RunDir, status: str, faults: list[str], **given: Any) -> dict[str, Any]:
        sealed.append(faults)
        return seal(run, status, faults, **given)

    monkeypatch.setattr(module, "seal", noted)
    slower = dataclasses.replace(compose(SPEC), dilation=3.0)
    monkeypatch.setattr(restart, "slowed", lambda run: (slower, "too late"))
    outcome = supervise(compose(SPEC), runs_root=runs, quiet=True, machine=shared_machine())
    assert performed == [(1.0, None), (3.0, "too late")], "and not a third time"
    assert sealed == [["left behind: process 7"]], "by the first attempt"
    assert outcome.run.events.read_text() == "attempt 2"
    assert (outcome.run.first_attempt / "events.jsonl").read_text() == "attempt 1"


def test_a_run_that_does_not_end_says_where_it_hangs_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = "import faulthandler, signal, time\nsignal.signal(15, signal.SIG_IGN)\n"
    hangs += f"faulthandler.register({SAYS_WHERE:d})\nprint('up', flush=True)\ntime.sleep(600)"
    parent = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", parent, hangs],
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=functools.partial(end_with, os.getpid()),
        )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    (child,) = module._children(process.pid)
    monkeypatch.setattr(module, "STOP_TIMEOUT_S", 0.2)
    stop = Stop()
    stop.signals.append(signal.SIGTERM)
    try:
        assert module._wait(process, stop, shared_machine()) == -signal.SIGKILL
    finally:
        os.kill(child, signal.SIGKILL)  # `unshare --kill-child` takes a run's along
        process.stdout.close()
    assert "line 5 in <module>" in (tmp_path / "log").read_text()
