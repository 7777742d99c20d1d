"""Each side imports where the other sides' packages do not exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Every module of the packages given first is imported; those given second cannot be found.
IMPORT_ALL = """
import importlib, pkgutil, sys

packages, blocked = (argument.split(",") for argument in sys.argv[1:])

class Blocker:
    def find_spec(self, name, path=None, target=None):
        for root in blocked:
            if name == root or name.startswith(root + "."):
                raise ModuleNotFoundError(f"{name} belongs to another side", name=name)

sys.meta_path.insert(0, Blocker())
count = 0
for package in packages:
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            count += 1
print(count)
"""

LIVE_OUTSIDE = ["mininet", "netfilterqueue", "pyroute2", "hydra", "omegaconf", "prometheus_client"]
SIDES = {
    "core": (["testbed.core"], ["torch", "numpy", "rich", "yaml", *LIVE_OUTSIDE]),
    "topologies": (["topologies"], ["torch", "numpy", "rich", "yaml", *LIVE_OUTSIDE]),
    "orchestrator": (
        ["testbed.orchestrator"],
        [
            "torch",
            "numpy",
            "sklearn",
            "pysz",
            "duckdb",
            "matplotlib",
            "testbed.worker",
            "testbed.analysis",
            "compressors",
        ],
    ),
    "worker": (
        ["testbed.worker", "compressors"],
        ["duckdb", "testbed.orchestrator", "testbed.analysis", "topologies", *LIVE_OUTSIDE],
    ),
    "api": (
        ["longhaul"],
        ["torch", "testbed.orchestrator", "testbed.worker", "compressors", "topologies", "dashboards", *LIVE_OUTSIDE],
    ),
    "analysis": (
        ["testbed.analysis"],
        ["torch", "testbed.orchestrator", "testbed.worker", "compressors", "topologies", *LIVE_OUTSIDE],
    ),
}


@pytest.mark.parametrize("side", SIDES)
def test_a_side_imports_without_the_others(side: str) -> None:
    packages, blocked = SIDES[side]
    command = [sys.executable, "-c", IMPORT_ALL, ",".join(packages), ",".join(blocked)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0, "no module was imported, so nothing was checked"


def test_the_core_imports_the_standard_library_alone() -> None:
    for file in (ROOT / "testbed" / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = ["." * node.level + (node.module or "")]
            for name in names:
                allowed = name.split(".")[0] in sys.stdlib_module_names or name.startswith("testbed.core")
                assert allowed, f"{file.relative_to(ROOT)}:{node.lineno} imports {name}"
