"""Mutants of a small repository, tested by a command that catches those of one side."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from scripts import mutate
from scripts.mutation import session as sessions
from scripts.mutation import tree as trees
from scripts.mutation.draw import SIDES, Mutant, NoPlace, draws
from scripts.mutation.faults import compiled
from scripts.mutation.session import Result, Session

ROOT = Path(__file__).resolve().parents[3]
SEED = "0123abcd"
SOURCE = '''"""Adds."""


def add(a: int, b: int) -> int:
    return a + b if a < b else mixed(a, b) - 1  # the only line
'''
CATCHES_CORE = 'git diff --quiet testbed/core || { echo "FAILED tests/test_add.py::test_a[b - c] - assert 1"; exit 1; }'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one file on each side."""
    root = tmp_path / "repository"
    for folders in SIDES.values():
        (root / folders[0]).mkdir(parents=True)
        (root / folders[0] / "add.py").write_text(SOURCE)
    (root / ".gitignore").write_text("/build/\n/.venv/\n")
    git(root, "init", "--quiet")
    commit(root)
    return root


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True).stdout


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "all")


def call(root: Path, *arguments: str, command: str = CATCHES_CORE) -> int:
    return mutate.main(["--seed", SEED, "--command", command, *arguments], root)


def kept(root: Path) -> list[dict[str, Any]]:
    lines = (root / "build" / "mutants" / f"{SEED}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines][1:]


def test_a_mutant_is_caught_or_survives(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(root, "--mutants", "9") == 0
    results = [(trial["mutant"]["side"], trial["result"]) for trial in kept(root)]
    assert results == [(side, "caught" if side == "core" else "survived") for side in [*SIDES, "core"]]
    assert kept(root)[0]["detail"] == "tests/test_add.py::test_a[b - c]"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"seed {SEED}, commit ") and lines[1].startswith("without a mutant it passes in ")
    assert lines[2].startswith(" 1. core: testbed/core/add.py:5 add: ")
    assert (
        lines[3] == "    - return a + b if a < b else mixed(a, b) - 1 # the only line" != lines[4].replace("+", "-", 1)
    )
    assert lines[5].startswith("    caught by tests/test_add.py::test_a")
    assert lines[-2].startswith("caught 2 of 9 (") and lines[-1] == "survived: 2, 3, 4, 5, 6, 7, 8"


def test_the_tree_is_never_written(root: Path) -> None:
    (root / "compressors" / "add.py").write_text("changed = True\n")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert call(root, "--mutants", "2", command="git diff --numstat >> ../changes") == 0
    build = root / "build"
    assert before == {
        path: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.parts and build not in path.parents
    }
    changes = (build / "mutants" / "changes").read_text().splitlines()
    assert changes == ["1\t1\ttestbed/core/add.py", "1\t1\ttestbed/orchestrator/add.py"], "one file each, none without"
    assert git(build / "mutants" / "tree", "status", "--porcelain") == ""


def test_an_interrupted_session_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = trees.run, 0

    def interrupted(*arguments: Any) -> trees.Outcome:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(trees, "run", interrupted)
    assert call(root, "--mutants", "3") == 130
    first = kept(root)
    assert [trial["result"] for trial in first] == ["caught", "not tested", "not tested"]
    tree = root / "build" / "mutants" / "tree"
    (tree / "topologies" / "add.py").write_text("left by a call that was killed\n")
    assert call(root, "--mutants", "3") == 0
    assert calls == 5, "neither the baseline nor what was tested is run again"
    assert kept(root)[0] == first[0] and [trial["result"] for trial in kept(root)[1:]] == ["survived", "survived"]
    assert (tree / "topologies" / "add.py").read_text() == SOURCE


def test_a_later_commit_leaves_a_session_at_its_own(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(root, "--mutants", "1", "--no-baseline") == 0
    (root / "testbed" / "core" / "add.py").write_text("")
    commit(root)
    assert call(root, "--mutants", "9", "--no-baseline") == 0
    assert kept(root)[8]["mutant"]["side"] == "core"
    assert "HEAD is another commit" in capsys.readouterr().err


def test_an_equivalent_mutant_is_replaced_by_one_of_its_side(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(root, "--mutants", "3") == 0
    assert call(root, "--mutants", "3", "--equivalent", "2", "adds in either order") == 0
    second, last = kept(root)[1], kept(root)[3]
    assert (second["result"], second["detail"]) == ("equivalent", "adds in either order")
    assert (last["number"], last["replaces"], last["mutant"]["side"]) == (4, 2, "orchestrator")
    assert last["mutant"] != second["mutant"] and last["result"] == "survived"
    lines = capsys.readouterr().out.splitlines()
    assert "    equivalent: adds in either order" in lines and lines[-1] == "equivalent: 2"
    assert lines[-3].startswith("caught 1 of 3 ")
    assert call(root, "--mutants", "3", "--equivalent", "1", "no") == 1
    assert capsys.readouterr().err.startswith("--equivalent 1: caught by ")


def test_a_mutant_can_be_named_equivalent_before_any_is_tested(root: Path) -> None:
    assert call(root, "--mutants", "2", "--draw") == 0
    assert not (root / "build" / "mutants" / f"{SEED}.jsonl").exists()
    assert call(root, "--mutants", "2", "--draw", "--equivalent", "1", "no matter") == 0
    assert [trial["result"] for trial in kept(root)] == ["equivalent", "not tested", "not tested"]
    assert call(root, "--mutants", "2", "--equivalent", "4", "no") == 1


def test_what_changes_nothing_is_named_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(_root: Path, side: str, _seed: str) -> Iterator[Mutant]:
        for n in range(2):
            yield Mutant(side, "a.py", n, "f", "sign", n, n, "", "", "", changes=n > 0 or side != "core")

    monkeypatch.setattr(sessions, "draws", fake)
    session = Session(tmp_path / "a", SEED, "", "")
    session.draw(tmp_path, 3)
    assert [str(one) for one in session.trials] == ["changes nothing", "not tested", "not tested", "not tested"]
    assert (session.trials[3].mutant.side, session.trials[3].replaces) == ("core", 1)
    session.save()
    assert Session.load(session.file) == session
    assert session.numbers(Result.NOTHING) == [1]


def test_a_command_that_fails_without_a_mutant_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(root, command="echo no such test; false") == 1
    assert "fails without a mutant: the command itself (no such test)" in capsys.readouterr().err


def test_a_command_beyond_its_limit_has_caught_its_mutant(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "STOPPING_S", 0.5)  # what a shell puts in the background is deaf to SIGINT
    assert call(root, "--mutants", "1", "--no-baseline", "--limit-s", "0.2", command="sleep 300 & wait") == 0
    assert re.search(r"caught: timed out after \d+ s\ncaught 1 of 1", capsys.readouterr().out)


def test_a_second_call_at_once_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = root / "build" / "mutants"
    folder.mkdir(parents=True)
    with mutate.locked(folder):
        assert call(root) == 1
    assert "is still at work" in capsys.readouterr().err


@pytest.mark.parametrize(("installed", "status"), [("{root}/testbed", 0), ("{root}-2/testbed", 1)])
def test_the_clone_has_an_installation_of_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch, installed: str, status: int
) -> None:
    """Python here is a script that prints from where it would import."""
    packages = root / ".venv" / "lib" / "site-packages"
    for file, text in {
        packages / "torch" / "a.py": "",
        packages / "__editable___longhaul.py": installed.format(root=root),
        root / ".venv" / "bin" / "python": f"#!/bin/sh\necho \"'$(cat {packages}/__editable___longhaul.py)/'\"\n",
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    monkeypatch.chdir(root.parent)
    assert call(root, "--draw", "--folder", "elsewhere") == status
    packages_there = root.parent / "elsewhere" / "tree" / ".venv" / "lib" / "site-packages"
    assert (packages_there / "torch" / "a.py").samefile(packages / "torch" / "a.py")
    assert (packages / "__editable___longhaul.py").read_text() == installed.format(root=root)


@pytest.mark.parametrize("arguments", [["--seed", "no"], ["--equivalent", "a", "b"]])
def test_bad_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        mutate.parsed(arguments)


@pytest.mark.tier("all")
def test_twelve_of_this_tree_meet_every_side_and_are_drawn_again_by_their_seed(tmp_path: Path) -> None:
    one, other = (Session(tmp_path / "a", SEED, "", "") for _ in range(2))
    one.draw(ROOT, 12)
    other.draw(ROOT, 12)
    assert one == other
    assert [trial.mutant.side for trial in one.trials][:12] == [*SIDES, *SIDES][:12]
    for trial in one.trials:
        text = (ROOT / trial.mutant.path).read_text()
        meaning = compiled(trial.mutant.plant(text))
        assert meaning is not None and (meaning != compiled(text)) == trial.mutant.changes


def test_another_seed_draws_others(root: Path) -> None:
    def first(seed: str) -> list[Mutant]:
        return list(islice(draws(root, "core", seed), 5))

    assert first("1") == first("1") != first("2")
    assert len(set(first("1"))) == 5


def test_a_side_without_a_place_is_named(root: Path) -> None:
    (root / "topologies" / "add.py").write_text("def f():\n    return None\n")
    with pytest.raises(NoPlace, match="topologies: no function has a place left"):
        next(draws(root, "topologies", SEED))
