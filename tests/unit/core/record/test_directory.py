"""A directory of somebody else's: nothing is written through what lies in it, and no lock taken where he may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.core.errors import MachineError
from testbed.core.record import run_directory
from testbed.core.record.directory import Directory, open_lock
from testbed.core.record.run_directory import RunDir, make_runtime_root, write_json

NAME = "20260102T030405Z-wan1g-ddp-topk-abcdef01"


@pytest.mark.parametrize("planted", ["link", "hard link", "pipe", "file"])
def test_what_lies_under_a_name_is_replaced_and_never_written_to(tmp_path: Path, planted: str) -> None:
    folder, victim = tmp_path / "run", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("kept")
    name = folder / "summary.json"
    {
        "link": lambda: name.symlink_to(victim),
        "hard link": lambda: name.hardlink_to(victim),
        "pipe": lambda: os.mkfifo(name),
        "file": lambda: name.write_text("old"),
    }[planted]()
    write_json(name, {"a": 1})
    assert name.read_text() == '{\n  "a": 1\n}\n' and not name.is_symlink()
    assert victim.read_text() == "kept"
    assert [one.name for one in folder.iterdir()] == ["summary.json"]


def test_a_link_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="link"):
        Directory(tmp_path / "link")


def test_a_directory_that_is_moved_away_is_still_the_one_that_was_opened(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    with Directory(tmp_path / "run") as folder:
        (tmp_path / "run").rename(tmp_path / "moved")
        (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
        with folder.replaced("a") as file:
            file.write(b"1")
    assert (tmp_path / "moved" / "a").read_bytes() == b"1" and not list((tmp_path / "elsewhere").iterdir())


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    for name in (".a.0123.part", "a.part", ".b"):
        (tmp_path / name).touch()
    with Directory(tmp_path) as folder:
        folder.remove_parts()
        assert folder.names() == [".b", "a.part"]


@pytest.mark.parametrize("planted", ["link", "dangling", "pipe", "folder"])
def test_a_planted_lock_is_neither_followed_nor_emptied(tmp_path: Path, planted: str) -> None:
    lock, victim = tmp_path / "a.lock", tmp_path / "victim"
    victim.write_text("kept")
    {
        "link": lambda: lock.symlink_to(victim),
        "dangling": lambda: lock.symlink_to(tmp_path / "nothing"),
        "pipe": lambda: os.mkfifo(lock),
        "folder": lambda: lock.mkdir(),
    }[planted]()
    with pytest.raises((OSError, ValueError)):
        open_lock(lock)
    assert victim.read_text() == "kept" and not (tmp_path / "nothing").exists()


def test_a_lock_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text("kept")
    open_lock(tmp_path / "a.lock").close()
    assert (tmp_path / "a.lock").read_text() == "kept"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_locks_are_not_put_where_others_may_write(tmp_path: Path, mode: int) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root").chmod(mode)
    with pytest.raises(MachineError, match="belongs to somebody else"):
        make_runtime_root(tmp_path / "root")


def test_another_user_s_run_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock lies in a folder of that user's, who could have put a link there."""
    run = RunDir.create(tmp_path / "runs", NAME)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    monkeypatch.setattr(run_directory, "runtime_root", lambda uid: theirs)
    monkeypatch.setattr(os, "geteuid", lambda: run.path.stat().st_uid + 1)
    (tmp_path / "victim").write_text("kept")
    run.lock.symlink_to(tmp_path / "victim")
    with run.held(wait=False) as had:
        assert not had
    assert (tmp_path / "victim").read_text() == "kept"
    assert run.is_alive(), "who may not look must take it that somebody holds it"
    run.lock.unlink()
    os.mkfifo(run.lock)
    assert run.is_alive(), "a pipe holds nobody up"
