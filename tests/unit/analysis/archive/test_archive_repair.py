"""Whatever interrupts the making of an archive, the next call puts it right; what promtool drops is missed."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.analysis.archive import archive
from testbed.analysis.archive.archive import update
from testbed.analysis.archive.blocks import blocks, stored_samples
from testbed.core.errors import MachineError, RunError
from tests.unit.analysis.archived import assert_whole, copies, finished_run, require_prometheus, run_id
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _prometheus() -> None:
    require_prometheus()


class Killed(BaseException):
    """Passes by every handler, as a kill does."""


@pytest.mark.tier("all")
@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("step", range(1, 11))
def test_a_kill_between_any_two_steps_is_put_right(
    runs: Path, output: Path, monkeypatch: pytest.MonkeyPatch, step: int, anew: bool
) -> None:
    copies(finished_run(runs), 3)
    update(runs, output)
    finished_run(runs, 8)
    if anew:
        shutil.rmtree(runs / run_id(1))
    taken = 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **named: object) -> object:
            nonlocal taken
            taken += 1
            if taken == step:
                raise Killed
            return function(*arguments, **named)

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(archive, "create_blocks", counted(archive.create_blocks))
        patch.setattr(archive, "write_json", counted(archive.write_json))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        for name in ("rename", "unlink", "mkdir"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        try:
            update(runs, output)
        except Killed:
            pass
        else:
            assert taken < step
    assert_whole(update(runs, output), runs, 3 if anew else 4)


def fake_promtool(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    program = folder / "promtool"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_promtool_ends_with_the_call_that_is_killed(
    runs: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_run(runs)
    told = tmp_path / "pid"
    with monkeypatch.context() as patch:
        fake_promtool(tmp_path / "bin", f"echo $$ >{told}.part; mv {told}.part {told}; exec sleep 900", patch)
        command = [sys.executable, "-m", "testbed.analysis", "archive", str(runs), "--output", str(output)]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            wait_until(lambda: told.exists() or process.poll() is not None, "promtool to begin")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert told.exists(), "the archive ended without promtool"
    wait_until(lambda: not is_running(int(told.read_text())), "the end of promtool after that of its call")
    assert_whole(update(runs, output), runs, 1)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except FileNotFoundError:
        return False


def test_samples_that_promtool_drops_are_missed(
    runs: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_run(runs)
    before = update(runs, output)
    finished_run(runs, 1)
    real = shutil.which("promtool")
    drops = f'sed -i 7d "$5"; exec {real} "$@"'
    with monkeypatch.context() as patch:
        fake_promtool(tmp_path / "bin", drops, patch)
        with pytest.raises(RunError, match="and said nothing of the other 1"):
            update(runs, output)
    assert stored_samples(before.data) == before.samples
    assert_whole(update(runs, output), runs, 2)


def test_what_promtool_says_is_told(runs: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_run(runs)
    fake_promtool(tmp_path / "bin", "echo no room >&2; exit 1", monkeypatch)
    with pytest.raises(RunError, match=r"promtool made no blocks of .* no room"):
        update(runs, output)


def test_without_promtool_the_cure_is_named(runs: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_run(runs)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError, match=r"promtool: not found.*apt-get install prometheus"):
        update(runs, output)


def test_blocks_that_somebody_removed_are_made_again(runs: Path, output: Path) -> None:
    finished_run(runs)
    done = update(runs, output)
    shutil.rmtree(blocks(done.data)[0])
    done = update(runs, output)
    assert done.rebuilt == "its blocks are not those that were written"
    assert_whole(done, runs, 1)


@pytest.mark.parametrize("text", ["", "[]", '{"runs": {"a": 1}, "form": "x"}', "[" * 100_000])
def test_a_damaged_state_costs_one_rebuilding(runs: Path, output: Path, text: str) -> None:
    finished_run(runs)
    update(runs, output)
    (output / "state.json").write_text(text)
    assert_whole(update(runs, output), runs, 1)
