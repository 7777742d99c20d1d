"""Pins, locks and version say the same thing everywhere."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.core.packages import OTHER_SIDE

ROOT = Path(__file__).resolve().parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = sorted({pin for extra in PROJECT["project"]["optional-dependencies"].values() for pin in extra})
LOCK = (ROOT / "requirements" / "lock.txt").read_text()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    return {normal(n): v for n, v in re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)}


@pytest.mark.parametrize("pin", PINS)
def test_every_pin_of_an_extra_is_exact_and_locked(pin: str) -> None:
    name, version = pin.split("==")
    if name == "torch":
        assert (ROOT / "requirements" / "torch.txt").read_text().strip() == pin
    else:
        assert locked()[normal(name)] == version


@pytest.mark.parametrize("name", ["lock.txt", "build.txt", "tools.txt"])
def test_every_locked_package_has_a_hash(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert entries and (name != "lock.txt" or len(entries) == len(locked()))
    assert [entry.split("\n")[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_what_writes_the_lock_is_locked() -> None:
    script = (ROOT / "scripts" / "lock.sh").read_text()
    installed = re.findall(r"pip\S* install .*", script)
    assert installed and all("--require-hashes" in line for line in installed)
    (pinned,) = re.findall(r"pip-tools==\S+?(?=\")", script)
    assert f"{pinned} " in (ROOT / "requirements" / "tools.txt").read_text()


@pytest.mark.parametrize("name", ["lock.txt", "build.txt", "tools.txt", "torch.txt"])
def test_a_lock_does_not_say_where_packages_come_from(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    assert not re.search(r"https?:|file:|index-url|find-links|trusted-host", text)


def test_the_installed_version_is_the_code_s() -> None:
    assert importlib.metadata.version("longhaul-testbed") == testbed.__version__


def test_what_torch_needs_comes_from_the_lock() -> None:
    requirements = importlib.metadata.requires("torch") or []
    # A CUDA build needs NVIDIA's and Triton's packages too, which torch itself pins exactly.
    bare = [r for r in requirements if ";" not in r and not r.startswith(("nvidia", "triton", "cuda"))]
    names = {normal(re.split(r"[<>=!~\[ ]", r, maxsplit=1)[0]) for r in bare}
    assert names <= set(locked()), names - set(locked())


def test_node_s_packages_are_exact_and_locked_and_not_said_to_come_from_anywhere() -> None:
    folder = ROOT / "dashboards" / "grafana_data"
    pins = json.loads((folder / "package.json").read_text())["dependencies"]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["dependencies"] == pins
    for name, version in pins.items():
        assert packages[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in package and "resolved" not in package for package in packages.values())


SIDES = {
    "orchestrator": ("testbed/orchestrator",),
    "worker": ("testbed/worker", "compressors"),
    "analysis": ("testbed/analysis", "longhaul"),
}
ELECTIVE = {"orchestrator": ("ray", "slurm")}
"""Extras of a side that are asked for one by one: places where runs are made."""
OURS = {"testbed", "compressors", "topologies", "dashboards", "longhaul"}
ELSEWHERE = {"mininet"}
"""Comes with the system."""
BY_NAME = {"worker": {"pysz", "zfpy", "zstandard", "blosc2", "sklearn"}, "analysis": {"plotly"}}
"""Loaded or found by their names: compressors/parts/codec_child.py, workload `digits`, pages with Plotly.js."""


def imported(folder: Path) -> set[str]:
    """First names of all imports, those inside functions included."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - OURS - ELSEWHERE


@pytest.mark.parametrize("extra", SIDES)
def test_an_extra_has_what_its_side_imports_and_no_more(extra: str) -> None:
    names = set().union(*(imported(ROOT / folder) for folder in SIDES[extra])) | BY_NAME.get(extra, set())
    of = importlib.metadata.packages_distributions()
    needed = {normal(name) for module in names for name in of[module]}
    extras = PROJECT["project"]["optional-dependencies"]
    pins = {normal(pin.partition("==")[0]) for one in (extra, *ELECTIVE.get(extra, ())) for pin in extras[one]}
    assert needed == pins


def test_rank_0_of_a_cluster_asks_for_packages_of_the_other_sides() -> None:
    of = importlib.metadata.packages_distributions()
    extras = PROJECT["project"]["optional-dependencies"]
    others = {normal(pin.partition("==")[0]) for extra in ("orchestrator", "analysis") for pin in extras[extra]}
    assert {normal(of[module][0]) for module in OTHER_SIDE} <= others
