"""The rules of the layout hold, and a planted violation breaks each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boundary.layout import (
    CODE,
    FAMILIES,
    MAX_DEPTH,
    MAX_MODULES,
    Tree,
    cycle,
    deep_folders,
    folder_imports,
    full_folders,
    one_sided,
    read_tree,
    sibling_imports,
    unmirrored,
    unreached,
)

ROOT = Path(__file__).resolve().parents[2]
MAX_EXCEPTIONS = 5
EXCEPTIONS: dict[str, str] = {}
"""Modules of the core that one side alone reaches, and why. Size and cycles have no exceptions."""
FOUND_BY_NAME = {
    "experiments/benchmarks/*/declaration.py": "experiments/common/benchmark.py imports the folder's declaration",
    "experiments/benchmarks/netem/guest.py": "experiments/common/point.py imports it inside the virtual machine",
    "experiments/scripts/note_parameters.py": "users copy it into a training of theirs: docs/timelines.md",
    "experiments/reproductions/*/claim.py": "experiments/common/papers/declaration.py imports the system's",
    "experiments/reproductions/*/declaration.py": "experiments/common/papers/declaration.py imports the system's",
}
"""Modules that a program imports by a name which it puts together, or that users copy; and who does."""


@pytest.fixture(scope="module")
def tree() -> Tree:
    return read_tree(ROOT)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository of three sides and a core, of which every rule holds."""
    for path, text in {
        "pyproject.toml": '[project]\nscripts = { tool = "testbed.orchestrator.command:main" }\n',
        "testbed/__init__.py": "",
        "testbed/core/units.py": "",
        "testbed/core/errors.py": "from testbed.core import units",
        "testbed/orchestrator/command.py": "from testbed.core import errors",
        "testbed/worker/__main__.py": "from testbed.worker.loop import run",
        "testbed/worker/loop.py": "import testbed.core.errors",
        "tests/unit/worker/test_loop.py": "",
    }.items():
        write(tmp_path, path, text)
    return tmp_path


def write(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")


def under(code: str, paths: set[str]) -> set[str]:
    return {path for path in paths if path.startswith(f"{code}/")}


# Size and depth.


def test_a_folder_holds_twelve_modules_at_most(tree: Tree) -> None:
    assert full_folders(tree) == {}


def test_no_folder_lies_deeper_than_four_below_its_top(tree: Tree) -> None:
    assert deep_folders(tree) == set()


def test_families_of_plug_ins_are_folders_of_the_code(tree: Tree) -> None:
    assert {family for family in FAMILIES if not (tree.root / family).is_dir()} == set()


def test_a_module_too_many_is_found_and_packages_own_files_do_not_count(small: Path) -> None:
    for number in range(MAX_MODULES):
        write(small, f"testbed/analysis/m{number}.py")
        write(small, f"compressors/c{number}.py")
    write(small, "testbed/analysis/__init__.py")
    write(small, "testbed/analysis/__main__.py")
    write(small, "compressors/one_more.py")
    assert full_folders(read_tree(small)) == {}
    write(small, "testbed/analysis/one_more.py")
    assert full_folders(read_tree(small)) == {"testbed/analysis": MAX_MODULES + 1}


def test_a_folder_too_deep_is_found(small: Path) -> None:
    deepest = "/".join(["testbed", *"abcdefgh"[:MAX_DEPTH]])
    write(small, f"{deepest}/module.py")
    assert deep_folders(read_tree(small)) == set()
    write(small, f"{deepest}/below/module.py")
    assert deep_folders(read_tree(small)) == {f"{deepest}/below"}


# Cycles.


def test_no_files_import_each_other_in_a_cycle(tree: Tree) -> None:
    assert cycle(tree.imports) == []


def test_no_folders_import_each_other_in_a_cycle(tree: Tree) -> None:
    assert cycle(folder_imports(tree)) == []


@pytest.mark.parametrize("code", CODE)
def test_no_siblings_with_all_below_them_import_each_other_in_a_cycle(tree: Tree, code: str) -> None:
    graphs = sibling_imports(tree)
    found = {parent: cycle(graph) for parent, graph in graphs.items() if f"{parent}/".startswith(f"{code}/")}
    assert {parent: names for parent, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import testbed.orchestrator.command",
        "from testbed.orchestrator import command",
        "from .command import main",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from testbed.orchestrator.command import main",
        "def late():\n    from testbed.orchestrator.command import main",
    ],
)
def test_a_cycle_of_files_is_found_however_it_is_imported(small: Path, line: str) -> None:
    write(small, "testbed/orchestrator/command.py", "import testbed.orchestrator.helper")
    write(small, "testbed/orchestrator/helper.py")
    assert cycle(read_tree(small).imports) == []
    write(small, "testbed/orchestrator/helper.py", line)
    found = cycle(read_tree(small).imports)
    assert set(found) == {"testbed/orchestrator/command.py", "testbed/orchestrator/helper.py"}


def test_a_cycle_of_a_folder_and_one_inside_it_is_found(small: Path) -> None:
    write(small, "testbed/orchestrator/run/process.py")
    write(small, "testbed/orchestrator/command.py", "import testbed.orchestrator.run.process, testbed")
    assert cycle(folder_imports(read_tree(small))) == []
    write(small, "testbed/orchestrator/helper.py")
    write(small, "testbed/orchestrator/run/other.py", "import testbed.orchestrator.helper")
    found = cycle(folder_imports(read_tree(small)))
    assert set(found) == {"testbed/orchestrator", "testbed/orchestrator/run"}
    assert cycle(read_tree(small).imports) == []


def test_a_cycle_of_siblings_is_found_by_what_lies_below_them(small: Path) -> None:
    write(small, "testbed/analysis/report/page.py", "import testbed.analysis.style.chart")
    write(small, "testbed/analysis/style/chart.py")
    write(small, "testbed/analysis/style/colours/names.py")
    assert {parent: cycle(graph) for parent, graph in sibling_imports(read_tree(small)).items()} == {
        "testbed": [],
        "testbed/analysis": [],
    }
    write(small, "testbed/analysis/report/words/terms.py")
    write(small, "testbed/analysis/style/colours/names.py", "import testbed.analysis.report.words.terms")
    tree = read_tree(small)
    assert set(cycle(sibling_imports(tree)["testbed/analysis"])) == {"report", "style"}
    assert cycle(folder_imports(tree)) == []


# The core.


def test_the_core_is_what_two_sides_reach_and_every_exception_is_needed(tree: Tree) -> None:
    assert one_sided(tree) == set(EXCEPTIONS)


def test_exceptions_are_few() -> None:
    assert len(EXCEPTIONS) <= MAX_EXCEPTIONS


def test_a_module_of_the_core_that_one_side_reaches_is_found(small: Path) -> None:
    assert one_sided(read_tree(small)) == set()  # of units, through errors
    write(small, "testbed/worker/loop.py")
    assert one_sided(read_tree(small)) == {"testbed/core/errors.py", "testbed/core/units.py"}
    write(small, "compressors/topk.py", "from testbed.core import units")
    assert one_sided(read_tree(small)) == {"testbed/core/errors.py"}


def test_a_module_that_its_package_imports_is_reached_with_any_other_of_the_package(small: Path) -> None:
    write(small, "testbed/core/events/run.py")
    write(small, "testbed/core/events/note.py")
    for path in ("testbed/worker/loop.py", "testbed/orchestrator/command.py"):
        write(small, path, "import testbed.core.errors, testbed.core.events.run")
    assert one_sided(read_tree(small)) == {"testbed/core/events/note.py"}
    write(small, "testbed/core/events/__init__.py", "from testbed.core.events import note")
    assert one_sided(read_tree(small)) == set()


def test_the_worker_and_compressors_are_one_side_and_experiments_none(small: Path) -> None:
    write(small, "testbed/core/costs.py")
    for path in ("testbed/worker/loop.py", "compressors/topk.py", "experiments/page.py", "topologies/lan.py"):
        write(small, path, "import testbed.core.errors, testbed.core.costs")
    assert one_sided(read_tree(small)) == {"testbed/core/costs.py"}


# Use.


@pytest.mark.parametrize("code", CODE)
def test_every_module_is_reached_from_a_program(tree: Tree, code: str) -> None:
    assert under(code, unreached(tree, FOUND_BY_NAME)) == set()


@pytest.mark.parametrize("pattern", FOUND_BY_NAME)
def test_what_is_found_by_name_is_reached_in_no_other_way(tree: Tree, pattern: str) -> None:
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)}
    assert found & unreached(tree, FOUND_BY_NAME.keys() - {pattern})


def test_a_module_that_no_program_reaches_is_found(small: Path) -> None:
    assert unreached(read_tree(small)) == set()
    write(small, "testbed/worker/dead.py", "import testbed.worker.also_dead")
    write(small, "testbed/worker/also_dead.py")
    dead = {"testbed/worker/dead.py", "testbed/worker/also_dead.py"}
    assert unreached(read_tree(small)) == dead
    write(small, "tests/unit/worker/test_dead.py", "import testbed.worker.dead")
    assert unreached(read_tree(small)) == dead


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("scripts/tool.py", "from testbed.worker import found"),
        ("experiments/conf/strategy/found.yaml", "_target_: testbed.worker.found.Found"),
        ("testbed/worker/other.py", 'import testbed.worker.found\nif __name__ == "__main__":\n    pass'),
        ("testbed/worker/found.py", 'if __name__ == "__main__":\n    pass'),
    ],
)
def test_scripts_yaml_files_and_modules_that_run_are_programs(small: Path, path: str, text: str) -> None:
    write(small, "testbed/worker/found.py")
    assert unreached(read_tree(small)) == {"testbed/worker/found.py"}
    assert unreached(read_tree(small), ["testbed/*/found.py"]) == set()
    write(small, path, text)
    assert unreached(read_tree(small)) == set()


# Tests.


def test_unit_tests_lie_in_folders_of_the_code() -> None:
    assert unmirrored(ROOT) == set()


def test_a_folder_of_tests_that_the_code_has_not_is_found(small: Path) -> None:
    write(small, "tests/unit/worker/peers/made_up.py")  # a helper
    write(small, "docs/index.md")
    write(small, "tests/unit/docs/test_index.py")
    assert unmirrored(small) == set()
    write(small, "tests/unit/worker/peers/test_peers.py")
    assert unmirrored(small) == {"worker/peers"}
