"""A run directory that is sent: it arrives whole and under its name, or not at all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.executors.run_archive import ARRIVING, pack, remove_halves, unpack
from tests.unit.orchestrator.made_runs import asked_of, grid, make_run


@pytest.fixture
def sent(tmp_path: Path) -> RunDir:
    run = make_run(tmp_path / "there", asked_of(grid("seed=3"))[0].spec)
    (run.logs / "w1.log").write_bytes(bytes(range(256)) * 100)
    return run


def contents(run: RunDir) -> dict[str, bytes]:
    return {str(path.relative_to(run.path)): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_every_file_arrives_as_it_was_and_a_second_time_changes_nothing(sent: RunDir, runs: Path) -> None:
    arrived = unpack(pack(sent), runs)
    assert arrived.run_id == sent.run_id and contents(arrived) == contents(sent)
    (arrived.logs / "note").write_text("ours")
    assert unpack(pack(sent), runs).path == arrived.path and (arrived.logs / "note").exists()
    assert [path.name for path in runs.iterdir()] == [sent.run_id]


def _cut(archive: dict[str, Any]) -> None:
    archive["files"]["logs/w1.log"]["zlib"] = archive["files"]["logs/w1.log"]["zlib"][:-20]


def _flipped(archive: dict[str, Any]) -> None:
    archive["files"]["spec.json"]["zlib"] = archive["files"]["summary.json"]["zlib"]


def _lacking(archive: dict[str, Any]) -> None:
    del archive["files"]["provenance.json"]


def _renamed(archive: dict[str, Any]) -> None:
    archive["run_id"] = "../20270115T080000Z-outside"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_cut, "logs/w1.log: came back damaged"),
        (_flipped, "spec.json: came back damaged: its SHA-256 is another"),
        (_lacking, "came back with other files than were sent"),
        (_renamed, "which is no run id"),
    ],
)
def test_a_damaged_parcel_is_named_and_leaves_nothing(
    sent: RunDir, runs: Path, harm: Callable[[dict[str, Any]], None], said: str
) -> None:
    archive = copy.deepcopy(pack(sent))
    harm(archive)
    with pytest.raises(RunError, match=said):
        unpack(archive, runs)
    assert not list(runs.iterdir()) and not (runs.parent / "20270115T080000Z-outside").exists()


def test_what_is_no_plain_file_is_not_sent(sent: RunDir) -> None:
    (sent.path / "link").symlink_to("/etc/hostname")
    with pytest.raises(RunError, match="link: is no regular file"):
        pack(sent)


def test_what_a_killed_sweep_had_half_unpacked_goes_and_runs_stay(sent: RunDir, runs: Path) -> None:
    (runs / f"{ARRIVING}abc" / "logs").mkdir(parents=True)
    unpack(pack(sent), runs)
    remove_halves(runs)
    assert [path.name for path in runs.iterdir()] == [sent.run_id]
