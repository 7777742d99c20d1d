from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed.core.record import run_directory
from testbed.core.record.run_directory import RUN_ID, RunDir, new_run_id, write_json
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[4]
NAME = "20260102T030405Z-wan1g-ddp-topk-abcdef01"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "run")
    return RunDir.create(tmp_path / "runs", NAME)


def test_a_run_id_says_when_what_and_which() -> None:
    run_id = new_run_id("wan1g", "ddp", "topk", "abcdef0123456789", now_s=1767323045)
    assert run_id == NAME
    assert RUN_ID.match(run_id)


@pytest.mark.parametrize(
    "text", ["", ".", "..", "runs", "../" + NAME, NAME + "/x", "20260102-wan1g", NAME + " x", "/" + NAME]
)
def test_a_path_is_no_run_id(text: str) -> None:
    assert not RUN_ID.match(text)


def test_a_second_run_of_the_same_second_gets_a_directory_of_its_own(run: RunDir) -> None:
    second = RunDir.create(run.path.parent, NAME)
    assert second.path != run.path
    assert RUN_ID.match(second.run_id)
    assert second.lock != run.lock
    assert second.logs.is_dir()


def test_the_socket_s_path_fits_a_unix_address() -> None:
    longest = RunDir(Path("/runs") / ("20260102T030405Z-" + "x" * 80))
    assert len(os.fsencode(longest.socket)) <= 107


def test_the_lock_says_whether_a_run_is_alive(run: RunDir) -> None:
    assert not run.is_alive()
    with run.held():
        assert run.is_alive()
        assert RunDir(run.path).is_alive(), "for another reader too"
    assert not run.is_alive()
    assert not run.lock.exists(), "nothing of it is left"


def test_a_lock_is_held_once_and_who_will_not_wait_is_told(run: RunDir) -> None:
    with run.held() as had, RunDir(run.path).held(wait=False) as too:
        assert had and not too
        assert run.is_alive(), "who was refused does not free it"
    with run.held(wait=False) as had:
        assert had


def test_a_run_waits_for_its_lock(run: RunDir) -> None:
    def take() -> bool:
        with run.held() as had:
            return had

    with ThreadPoolExecutor() as pool:
        with run.held():
            second = pool.submit(take)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.1)
        assert second.result(timeout=HANG_S)


def test_a_killed_run_is_not_alive(run: RunDir) -> None:
    """The kernel drops the lock, whatever way the process ends."""
    code = (
        "import sys, time; from pathlib import Path; from testbed.core.record import run_directory as rundir\n"
        "rundir.RUNTIME_ROOT = Path(sys.argv[1])\n"
        "with rundir.RunDir(Path(sys.argv[2])).held(): print('held', flush=True); time.sleep(900)"
    )
    command = [sys.executable, "-c", code, str(run_directory.RUNTIME_ROOT), str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert run.is_alive()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not run.is_alive()


def test_json_is_written_whole_and_readable_by_all(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    assert path.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"], "no temporary file is left"


@pytest.mark.parametrize("bad", [{"a": float("nan")}, {"a": object()}])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, bad: object) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})
    with pytest.raises((ValueError, TypeError)):
        write_json(path, bad)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_a_cut_off_last_line_is_left_out(run: RunDir) -> None:
    run.events.write_text('{"event": "step", "t_s": 1.0}\n{"event": "host", "t_s": 1.5}\n{"event": "st')
    assert [event["event"] for event in run.read_events()] == ["step", "host"]


def test_a_run_without_events_has_none(run: RunDir) -> None:
    assert list(run.read_events()) == []
    run.events.write_text("")
    assert list(run.read_events()) == []


def test_what_is_not_there_reads_as_none(run: RunDir) -> None:
    assert run.read_json(run.summary) is None
    write_json(run.summary, {"status": "completed"})
    assert run.read_json(run.summary) == {"status": "completed"}
