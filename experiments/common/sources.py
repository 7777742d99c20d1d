"""Which files of this clone a module is made of: its own, and all it imports."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from testbed.analysis.simulator.calibration import DEFAULT_FILE
from testbed.orchestrator.machine.clone import CLONE

_SIMULATOR = "testbed.analysis.simulator."
_BENEATH = (
    "spec.paths",
    "spec.scale",
    "spec.topology",
    "device.profile",
    "costs.collective",
    "costs.fusion",
    "costs.kfac_",
)
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
    folder = CLONE / "testbed" / "analysis" / "simulator"
    modules = [
        f"{_SIMULATOR}{'.'.join(path.relative_to(folder).with_suffix('').parts)}" for path in folder.rglob("*.py")
    ]
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


def benchmark_file(name: str) -> Path:
    """Of a benchmark, in the folder of its kind.

    Raises:
        ValueError: there is none of that name.
    """
    (found,) = (CLONE / "experiments" / "benchmarks").glob(f"*/{name}.py")
    return found


def benchmark(name: str) -> ModuleType:
    return importlib.import_module(f"experiments.benchmarks.{benchmark_file(name).parent.name}.{name}")


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


# The compressors there are, and which files their figures depend on.

CONF = CLONE / "experiments" / "conf" / "compressor"
NAMES = tuple(sorted(path.stem for path in CONF.glob("*.yaml")))
_RUN_BY_PATH = {"codec_process": "codec_child"}
"""A module that is started, not imported, by another one beside it."""


def compressor_files(name: str) -> set[Path]:
    """The member's defaults, its own files, and all they import of the package."""
    settings = CONF / f"{name}.yaml"
    modules = ["compressors.base.compressor", *targets(yaml.safe_load(settings.read_text()))]
    found = files(modules, ("compressors.",))
    started = {path.with_stem(_RUN_BY_PATH[path.stem]) for path in found if path.stem in _RUN_BY_PATH}
    return found | started | {settings}
