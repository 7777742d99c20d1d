"""A run directory that is sent: it arrives whole and under its name, or not at all."""

from __future__ import annotations

import copy
import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.executors import run_archive
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


def _resealed(run: RunDir, files: dict[str, Any]) -> dict[str, Any]:
    """An archive as somebody would make it who knows how: its sums are right."""
    return {"run_id": run.run_id, "files": files, "sha256": run_archive._sum_over(run.run_id, files)}


def _file(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "zlib": zlib.compress(content)}


STRANGE: dict[str, dict[Any, Any]] = {
    "zero in a name": {"a\0b": _file(b"")},
    "above": {"../a": _file(b"")},
    "above within": {"a/../../b": _file(b"")},
    "absolute": {"/etc/a": _file(b"")},
    "the directory": {".": _file(b"")},
    "empty": {"": _file(b"")},
    "long": {"a" * 256: _file(b"")},
    "deep": {"/".join("a" * 100): _file(b"")},
    "surrogate": {"a\ud800": _file(b"")},
    "file and folder": {"a": _file(b""), "a/b": _file(b"")},
    "no text": {3: _file(b"")},
    "no bytes": {"a": {"sha256": "", "zlib": "text"}},
    "no file": {"a": None},
    "cut": {"a": {**_file(b"abc" * 99), "zlib": zlib.compress(b"abc" * 99)[:-4]}},
    "more behind": {"a": {**_file(b"abc"), "zlib": zlib.compress(b"abc") + b"more"}},
}


@pytest.mark.parametrize("what", STRANGE)
def test_an_archive_that_was_made_to_harm_is_named_and_leaves_nothing(sent: RunDir, runs: Path, what: str) -> None:
    sound = pack(sent)["files"]
    try:
        archive = _resealed(sent, {**sound, **STRANGE[what]})
    except (KeyError, TypeError):  # of no form that has a sum
        archive = {"run_id": sent.run_id, "files": {**sound, **STRANGE[what]}, "sha256": ""}
    before = sorted(runs.parent.rglob("*"))
    with pytest.raises(RunError, match=f"{sent.run_id}.*: came back"):
        unpack(archive, runs)
    assert sorted(runs.parent.rglob("*")) == before


@pytest.mark.parametrize("strange", [{}, {"files": 3}, {"files": [1]}, {"run_id": None}])
def test_what_is_no_archive_is_named(runs: Path, strange: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="came back"):
        unpack({"run_id": "20270115T080000Z-a", **strange}, runs)


@pytest.mark.parametrize("piece", [b"\0", b"no word about it\n"])
def test_a_bomb_is_not_unpacked(sent: RunDir, runs: Path, piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is written until then, nothing stays."""
    monkeypatch.setattr(run_archive, "_SMALL_BYTES", 1_000_000)
    packed = zlib.compress(piece * (20_000_000 // len(piece)), 9)
    files = {**pack(sent)["files"], "a": {"sha256": "", "zlib": packed}}
    with pytest.raises(RunError, match="more bytes than a run's files have"):
        unpack(_resealed(sent, files), runs)
    assert not list(runs.iterdir())


def test_many_files_have_one_bound(sent: RunDir, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_archive, "MAX_BYTES", sum(path.stat().st_size for path in sent.path.rglob("*")) + 10_000)
    files = {**pack(sent)["files"], **{f"a{n}": _file(b"abcd" * 1000) for n in range(5)}}
    with pytest.raises(RunError, match="more bytes than a run's files have"):
        unpack(_resealed(sent, files), runs)
    assert not list(runs.iterdir())


def test_a_file_of_alike_bytes_arrives_all_the_same(sent: RunDir, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_archive, "_SMALL_BYTES", 1000)
    (sent.logs / "alike").write_bytes(b"a" * 1_000_000)
    assert contents(unpack(pack(sent), runs)) == contents(sent)


def test_what_is_no_plain_file_is_not_sent(sent: RunDir) -> None:
    (sent.path / "link").symlink_to("/etc/hostname")
    with pytest.raises(RunError, match="link: is no regular file"):
        pack(sent)


def test_what_a_killed_sweep_had_half_unpacked_goes_and_runs_stay(sent: RunDir, runs: Path) -> None:
    (runs / f"{ARRIVING}abc" / "logs").mkdir(parents=True)
    unpack(pack(sent), runs)
    remove_halves(runs)
    assert [path.name for path in runs.iterdir()] == [sent.run_id]
