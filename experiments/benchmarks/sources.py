"""Which files of this clone a module is made of: its own, and all it imports."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from testbed.analysis.simulator.calibration import DEFAULT_FILE
from testbed.orchestrator.clone import CLONE

_SIMULATOR = "testbed.analysis.simulator."
_BENEATH = ("paths", "profile", "collective_costs", "message_costs", "fusion", "scaling", "kfac_", "uniform_links")
"""Of `testbed.core`, what a predicted step follows from."""


def files(modules: Iterable[str], packages: tuple[str, ...]) -> set[Path]:
    """Of `modules`, and of all they import that begins with one of `packages`."""
    found: set[Path] = set()
    waiting = list(map(file, modules))
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path, packages)
    return found


def of_prediction() -> set[Path]:
    """What a predicted step depends on beside its workload: the simulator, what that plans by, and its constants."""
    modules = [f"{_SIMULATOR}{path.stem}" for path in file(_SIMULATOR + "plan").parent.glob("*.py")]
    return files(modules, (_SIMULATOR, *(f"testbed.core.{name}" for name in _BENEATH))) | {DEFAULT_FILE}


def targets(value: Any) -> Iterator[str]:
    """The modules of all `_target_` in a part's YAML."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield str(value["_target_"]).rpartition(".")[0]
        for inner in value.values():
            yield from targets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from targets(inner)


def file(module: str) -> Path:
    return CLONE / f"{module.replace('.', '/')}.py"


@functools.cache
def _imported(path: Path, packages: tuple[str, ...]) -> tuple[Path, ...]:
    found: list[Path] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(packages):
            # what is imported may be a module itself
            candidates = (file(node.module), *(file(f"{node.module}.{alias.name}") for alias in node.names))
            found += (candidate for candidate in candidates if candidate.exists())
    return tuple(found)
