"""What a run takes of Mininet is little: nothing of it shapes, cleans up or is a switch; and setup's own Pythons."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SETUP = (ROOT / "scripts" / "setup.sh").read_text()
CLASSES = ROOT / "testbed" / "orchestrator" / "emulation" / "links" / "mininet_classes.py"
USED = {"Mininet", "Node", "Intf", "Link", "empty_mininet"}
MACHINE_WIDE = re.compile(r"\bmn (-c|--clean)\b|\bkillall\b|\bpkill\b|mininet\.clean|mininet import clean")
"""Mininet's clean-up, and what it does: ends processes by their name, whoever they belong to."""


def imported(tree: ast.AST, package: str) -> set[str]:
    """Full names of what is imported from `package`; a whole module as "module.*"."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package:
            found |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {f"{name.name}.*" for name in node.names if name.name.split(".")[0] == package}
    return found


def modules_of_a_run() -> list[Path]:
    """Files of ours that the process of a run loads."""
    code = (
        "import sys, testbed.orchestrator.run, testbed.orchestrator.run.orchestration as c\n"
        "print(*(m.__file__ for n, m in list(sys.modules.items()) if n.split('.')[0] == 'testbed'), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def test_a_run_uses_mininets_nodes_and_links_alone() -> None:
    paths = modules_of_a_run()
    assert len(paths) > 40
    used = set().union(*(imported(ast.parse(path.read_text()), "testbed") for path in paths))
    assert {name.rpartition(".")[2] for name in used if ".mininet_classes." in name} == USED


def test_one_module_of_the_testbed_imports_mininet() -> None:
    paths = [path for path in (ROOT / "testbed").rglob("*.py") if imported(ast.parse(path.read_text()), "mininet")]
    assert paths == [CLASSES]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from mininet.link import TCLink", {"mininet.link.TCLink"}),
        ("def f():\n    import mininet.clean", {"mininet.clean.*"}),
        ("from mininets import x", set()),
    ],
)
def test_an_import_is_found_wherever_it_stands(code: str, found: set[str]) -> None:
    assert imported(ast.parse(code), "mininet") == found


def sources() -> Iterator[Path]:
    for folder in ("testbed", "compressors", "topologies", "experiments", "scripts"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".yaml"))
    yield from (ROOT / name for name in ("Makefile", ".ci/run"))


def test_nothing_ends_processes_by_name() -> None:
    paths = list(sources())
    assert len(paths) > 150
    assert [str(path) for path in paths if MACHINE_WIDE.search(path.read_text())] == []


@pytest.mark.parametrize("text", ["sudo mn -c", "from mininet.clean import cleanup", "pkill -9 -f mininet:"])
def test_a_machine_wide_clean_up_would_be_found(text: str) -> None:
    assert MACHINE_WIDE.search(text)


PYTHONS = {"3.9": False, "3.10": False, "3.11": True, "3.12": True, "3.13": True, "3.14": False, "none": False}


@pytest.mark.parametrize(("version", "is_taken"), PYTHONS.items())
def test_setup_takes_pythons_3_11_to_3_13(tmp_path: Path, version: str, is_taken: bool) -> None:
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    functions = re.findall(r"^(?:fail|say|check_python)\(\) \{.*?(?:\}$|^\}$)", SETUP, re.MULTILINE | re.DOTALL)
    assert len(functions) == 3
    script = "\n".join(["set -eu", *functions, f"PYTHON={python}", "check_python"])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == is_taken
    assert is_taken or f"is Python {version}" in done.stderr
