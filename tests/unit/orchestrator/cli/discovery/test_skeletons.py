"""`longhaul new`: every skeleton passes its own test, can be run as it is, and nothing is overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.orchestrator.cli.discovery.commands import _NEW
from testbed.orchestrator.cli.discovery.skeletons import SKELETONS, TEMPLATES
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.run.questions.plugins import check_parts
from testbed.orchestrator.search.sweep.files import read

PARTS = ("compressor", "strategy", "workload")


def new(kind: str, name: str, folder: Path) -> int:
    return main(["new", kind, name, "--folder", str(folder)])


def made(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_the_kinds_are_those_that_have_templates() -> None:
    assert set(_NEW) == set(SKELETONS) == {path.name for path in TEMPLATES.iterdir()}


@pytest.mark.parametrize("kind", _NEW)
def test_files_are_written_and_what_to_do_next(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "not yet" / "here"
    assert new(kind, "my_own_2", folder) == 0
    expected = ["my_own_2.py"] * (kind in PARTS) + ["my_own_2.yaml", "test_my_own_2.py"]
    assert made(folder) == expected
    said = capsys.readouterr().out
    assert all(f"wrote {folder / name}" in said for name in expected)
    assert f"pytest '{folder / 'test_my_own_2.py'}'" in said and "sudo .venv/bin/longhaul" in said
    assert "$" not in "".join((folder / name).read_text() for name in expected)


@pytest.mark.parametrize("kind", PARTS)
def test_a_skeleton_is_a_run_at_once(kind: str, tmp_path: Path) -> None:
    new(kind, "my_own", tmp_path)
    spec = compose([f"{kind}={tmp_path / 'my_own.yaml'}"])
    assert getattr(spec, kind).target == "my_own.MyOwn"
    assert check_parts(spec)["parameters"]


def test_a_topology_and_a_sweep_are_runs_at_once(tmp_path: Path) -> None:
    new("topology", "my_own", tmp_path)
    assert compose([f"topo={tmp_path / 'my_own.yaml'}"]).topology.regions == ("east", "west")
    new("sweep", "my_sweep", tmp_path)
    assert len(read(str(tmp_path / "my_sweep.yaml")).points()) == 8


@pytest.mark.tier("all")
def test_every_skeleton_passes_its_own_test_and_the_laws(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for kind in _NEW:
        new(kind, f"my_{kind}", tmp_path)
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout
    assert "12 passed" in ended.stdout
    assert main(["laws", str(tmp_path / "my_compressor.yaml"), "--no-run", "--no-speed"]) == 0
    assert "my_compressor is lawful" in capfd.readouterr().out


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text("precious\n")
    (tmp_path / "test_mine.py").symlink_to("nowhere")
    assert new("strategy", "mine", tmp_path) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'mine.yaml'}: exists; choose another name or --folder" in said
    assert "test_mine.py: exists" in said
    assert made(tmp_path) == ["mine.yaml", "test_mine.py"]
    assert (tmp_path / "mine.yaml").read_text() == "precious\n" and not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("kind", "name", "fault"),
    [
        ("compressor", "topk", "is the name of one of Longhaul's"),
        ("topology", "wan1g", "is the name of one of Longhaul's"),
        ("sweep", "smoke", "is the name of one of Longhaul's"),
        ("compressor", "Top-K2", "did you mean top_k2? it must be 22 small letters"),
        ("compressor", "../mine", "did you mean mine? it must be 22 small letters, digits and _ at most, and --folder"),
        ("compressor", "/tmp/mine", "did you mean mine?"),
        ("compressor", "mine.yaml", "did you mean mine?"),
        ("compressor", "a b", "did you mean a_b?"),
        ("compressor", "", "not a name; it must be"),
        ("compressor", "ünder", "not a name"),
        ("compressor", "mine\n", "not a name"),
        ("compressor", "a" * 23, "not a name"),
        ("workload", "2fast", "not a name"),
        ("strategy", "lambda", "is a word of Python or YAML"),
        ("strategy", "match", "is a word of Python or YAML"),
        ("strategy", "print", "is a word of Python or YAML"),
        ("sweep", "null", "is a word of Python or YAML"),
        ("sweep", "on", "is a word of Python or YAML"),
        ("strategy", "json", "is the name of an installed module"),
        ("workload", "torch", "is the name of an installed module"),
        ("compressor", "compressors", "is the name of an installed module"),
        ("strategy", "test_mine", "is a name that pytest takes for its own"),
        ("strategy", "conftest", "is a name that pytest takes for its own"),
    ],
)
def test_names_that_cannot_be_used_are_refused(
    kind: str, name: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new(kind, name, tmp_path / "folder") == 2
    said = capsys.readouterr().err
    assert fault in said and said.count("\n") == 1
    assert made(tmp_path) == []


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for folder, fault in (
        (tmp_path / "file" / "deeper", f"{tmp_path / 'file'} is a file; give a folder"),
        (CLONE / "compressors", "lies in a package of Longhaul"),
        (CLONE / "testbed" / "worker" / "new", "lies in a package of Longhaul"),
        (Path("/proc/nowhere"), "cannot be written to"),
    ):
        assert new("compressor", "mine", folder) == 2
        assert fault in capsys.readouterr().err
    assert not (CLONE / "compressors" / "mine.py").exists()


def test_an_unknown_kind_is_refused_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "compresor", "mine"]) == 2
    assert "compresor: unknown kind; did you mean compressor? known: compressor, strategy" in capsys.readouterr().err


def test_under_sudo_files_belong_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    monkeypatch.setattr(os, "chown", lambda path, *_, **__: given.append(Path(path).name))
    new("sweep", "mine", tmp_path / "new")
    assert set(given) == {"new", "mine.yaml", "test_mine.py"}
