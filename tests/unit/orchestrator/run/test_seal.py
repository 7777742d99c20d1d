"""A killed run's directory may come from elsewhere: sealing it follows nothing and leaves nothing half done."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.core.record import run_directory
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.machine import ownership
from testbed.orchestrator.run import seal

NAME = "20260102T030405Z-wan1g-ddp-topk-abcdef01"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "run")
    made = RunDir.create(tmp_path / "runs", NAME)
    made.spec.write_text(json.dumps(compose([]).to_json()))
    return made


def too_slow(*_: object, **__: Any) -> None:
    raise subprocess.TimeoutExpired("finish", 120)


def test_sealing_replaces_what_was_planted(run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (run.path / ".summary.json").symlink_to(victim)
    (run.path / ".reserve").symlink_to(victim)
    run.summary.symlink_to(tmp_path / "nothing")
    monkeypatch.setattr(seal.subprocess, "run", too_slow)
    assert seal.seal_killed(run.path.parent) == [NAME]
    assert victim.read_text() == "kept" and not (tmp_path / "nothing").exists()
    assert not run.summary.is_symlink() and json.loads(run.summary.read_text())["status"] == "killed"


def test_what_took_too_long_leaves_no_half_files(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.path / ".metrics.openmetrics.0123456789abcdef.part").write_text("much")
    monkeypatch.setattr(seal.subprocess, "run", too_slow)
    assert seal.analyse(run, {})[0].startswith("report and samples could not be made")
    assert not list(run.path.glob(".*"))


@pytest.mark.parametrize(
    "plant",
    [
        lambda spec: spec.symlink_to("/etc/passwd"),
        os.mkfifo,
        lambda spec: os.truncate(os.open(spec, os.O_CREAT | os.O_WRONLY), 10**12),
        lambda spec: spec.mkdir(),
    ],
    ids=["link", "pipe", "sparse", "folder"],
)
def test_a_spec_that_is_none_is_named_and_nothing_is_removed(run: RunDir, plant: Callable[[Path], object]) -> None:
    run.spec.unlink()
    plant(run.spec)
    with pytest.raises(RunError, match=f"{NAME}: its record cannot be sealed"):
        seal.seal_killed(run.path.parent)
    assert os.path.lexists(run.spec) and not run.summary.exists()


def test_another_user_s_run_is_left_to_that_user(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: run.path.stat().st_uid + 1)
    assert seal.seal_killed(run.path.parent) == []
    assert sorted(path.name for path in run.path.iterdir()) == ["logs", "spec.json"]


def test_only_files_of_the_run_are_given_away(run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second name of a file elsewhere, or a link to one, would give that file away."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    (run.path / "link").symlink_to(tmp_path / "outside")
    (run.logs / "second").hardlink_to(tmp_path / "outside" / "file")
    given: list[tuple[str, bool]] = []
    monkeypatch.setenv("SUDO_UID", "1")
    monkeypatch.setenv("SUDO_GID", "1")
    monkeypatch.setattr(
        os, "chown", lambda name, *_, follow_symlinks=True, **__: given.append((Path(name).name, follow_symlinks))
    )
    ownership.give_to_caller(run.path)
    assert sorted(given) == sorted((name, False) for name in (NAME, "logs", "spec.json", "link"))
