"""docs/architecture.md names every folder, in the order of imports, and files and definitions that are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
SIDES = ("core", "orchestrator", "worker", "analysis")
_ROW = re.compile(r"^\| (\d+) \|.*?\]\(\.\./([^)]+)\) \| `([\w.]+)` \|", re.MULTILINE)


def named_folders() -> Iterator[str]:
    """Of the blocks that draw the tree: two spaces deeper is inside the line above."""
    for block in re.findall(r"^```\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        parents: list[str] = []
        for line in block.splitlines():
            name = line.split()[0].removesuffix("/")
            depth = (len(line) - len(line.lstrip())) // 2
            parents[depth:] = [name]
            yield "/".join(parents)


def folders_of(place: Path) -> set[str]:
    return {path.parent.relative_to(ROOT).as_posix() for path in place.rglob("*.py")}


def definitions(path: Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
            found |= {f"{node.name}.{one.name}" for one in ast.walk(node) if isinstance(one, ast.FunctionDef)}
    return found


NAMED = list(named_folders())
HOPS = [(number, path, name) for number, path, name in _ROW.findall(TEXT)]


def test_every_folder_of_the_tree_is_there_once() -> None:
    assert [name for name in NAMED if not (ROOT / name).is_dir()] == []
    assert len(set(NAMED)) == len(NAMED)


def test_the_tree_has_every_folder_of_the_testbed_and_of_the_compressors() -> None:
    there = (folders_of(ROOT / "testbed") | folders_of(ROOT / "compressors")) - {"testbed"}
    assert sorted(there - set(NAMED)) == []


def test_the_paths_are_numbered_without_a_gap() -> None:
    numbers = [int(number) for number, _, _ in HOPS]
    run, gradient = numbers[:10], numbers[10:]
    assert run == list(range(1, 11))
    assert gradient == list(range(1, len(gradient) + 1)) and len(gradient) <= 12


@pytest.mark.parametrize(("number", "path", "name"), HOPS)
def test_each_step_names_a_definition_of_its_file(number: str, path: str, name: str) -> None:
    assert name in definitions(ROOT / path), f"step {number}"


@pytest.mark.parametrize("side", SIDES)
def test_a_folder_imports_only_those_listed_above_it(side: str) -> None:
    against = {
        (here, there)
        for here, there in imports_between_folders(f"testbed/{side}")
        if (ours := _apart(here, there)) is not None and NAMED.index(ours[1]) > NAMED.index(ours[0])
    }
    assert against == set()


def imports_between_folders(side: str) -> Iterator[tuple[str, str]]:
    """(folder, folder that it imports from) within one side."""
    for path in (ROOT / side).rglob("*.py"):
        here = path.parent.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                there = node.module.replace(".", "/")
                there = there if (ROOT / there).is_dir() else PurePosixPath(there).parent.as_posix()
                if there.startswith(side) and there != here:
                    yield here, there


def _apart(here: str, there: str) -> tuple[str, str] | None:
    """The two folders beside each other at which the paths part; None where one is inside the other."""
    done: list[str] = []
    for one, other in zip_longest(here.split("/"), there.split("/")):
        if one is None or other is None:
            return None
        if one != other:
            return "/".join([*done, one]), "/".join([*done, other])
        done.append(one)
    return None
