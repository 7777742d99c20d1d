"""Files of this clone that a figure depends on, found by module, and a hash of what they say."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from testbed.analysis.simulator.calibration import DEFAULT_FILE
from testbed.orchestrator.machine.clone import CLONE

CONF = CLONE / "experiments" / "conf"
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
_EMULATION, _OBSERVATION = "testbed.orchestrator.emulation.", "testbed.orchestrator.observation."
_BESIDE_THE_NETWORK = ("traffic/", "containers/", "measuring/capture", "measuring/tap")
"""Parts of the emulation that do not delay, limit or measure."""
_NETWORK = (
    *("testbed.core.spec.topology", "topologies.parts", "topologies.two_regions"),
    *(f"experiments.common.{name}" for name in ("testnet", "flow", "stream", "point")),
)
_RUN = "testbed.orchestrator.run."
_TRAINING = ("testbed.worker.", "testbed.core.costs.fusion", "testbed.core.costs.collective", "compressors.")
_PAPERS = "experiments.common.papers."


def file(module: str) -> Path:
    return CLONE / f"{module.replace('.', '/')}.py"


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


@functools.cache
def _imported(path: Path, packages: tuple[str, ...]) -> tuple[Path, ...]:
    found: list[Path] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(packages):
            # what is imported may be a module itself
            candidates = (file(node.module), *(file(f"{node.module}.{alias.name}") for alias in node.names))
            found += (candidate for candidate in candidates if candidate.exists())
    return tuple(found)


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


# What figures of one kind depend on.


def of_measuring(module: str) -> set[Path]:
    """A benchmark's measuring module, and what it imports of its own folder and of the papers' common values."""
    found = files([module], (f"{module.rpartition('.')[0]}.", _PAPERS))
    return found - {file(f"{_PAPERS}declaration")}  # it says what a reproduction is, and no figure follows from it


def of_network(*modules: str) -> Iterator[Path]:
    """The emulated network and what measures it.

    Args:
        modules: In addition; what they import of emulation, observation and simulator counts too.
    """
    emulation = file(_EMULATION.rstrip(".")).with_suffix("")
    for path in emulation.rglob("*.py"):
        if not str(path.relative_to(emulation)).startswith(_BESIDE_THE_NETWORK):
            yield path
    yield from map(file, _NETWORK)
    yield from files(modules, (_EMULATION, _OBSERVATION, _SIMULATOR))


def of_whole_runs(*modules: str) -> Iterator[Path]:
    """The emulated network, what runs in its nodes, and what starts that.

    Args:
        modules: As `of_network` takes them.
    """
    yield from of_network(*modules)
    for folder in ("testbed/core", "testbed/worker", "compressors"):
        yield from (CLONE / folder).rglob("*.py")
    for name in ("orchestration", "workers.workers", "workers.fork_server", "dilation.calibration", "dilation.pilot"):
        yield file(f"{_RUN}{name}")
    yield file("experiments.common.whole_run")


def of_training(strategy: str, workload: str, topo: str) -> Iterator[Path]:
    """What a training's figures depend on: not its compressor, and not the emulation."""
    settings = [CONF / f"{part}.yaml" for part in (f"strategy/{strategy}", f"workload/{workload}")]
    modules = [module for path in settings for module in targets(yaml.safe_load(path.read_text()))]
    yield from files(["testbed.worker.training.loop", "testbed.worker.process.session", *modules], _TRAINING)
    yield from (*settings, CONF / "config.yaml", CONF / "topo" / f"{topo}.yaml")
    yield from (file(f"{_RUN}dilation.first_guess"), file("experiments.common.whole_run"))


def of_prediction() -> set[Path]:
    """What a predicted step depends on beside its workload: the simulator, what that plans by, and its constants."""
    folder = file(_SIMULATOR.rstrip(".")).with_suffix("")
    modules = [
        f"{_SIMULATOR}{'.'.join(path.relative_to(folder).with_suffix('').parts)}" for path in folder.rglob("*.py")
    ]
    return files(modules, (_SIMULATOR, *(f"testbed.core.{name}" for name in _BENEATH))) | {DEFAULT_FILE}


# The compressors there are, and which files their figures depend on.

COMPRESSORS = tuple(sorted(path.stem for path in (CONF / "compressor").glob("*.yaml")))
_RUN_BY_PATH = {"codec_process": "codec_child"}
"""A module that is started, not imported, by another one beside it."""


def of_compressor(name: str) -> set[Path]:
    """The member's defaults, its own files, and all they import of the package."""
    settings = CONF / "compressor" / f"{name}.yaml"
    modules = ["compressors.base.compressor", *targets(yaml.safe_load(settings.read_text()))]
    found = files(modules, ("compressors.",))
    started = {path.with_stem(_RUN_BY_PATH[path.stem]) for path in found if path.stem in _RUN_BY_PATH}
    return found | started | {settings}


# What files say.


def hash_of(paths: Iterable[Path]) -> str:
    """Hash of what these files define, wherever each definition stands.

    It is of the sorted set of top-level definitions. Imports, comments, docstrings and format make no figure stale, nor
    does a definition that moves to another file.
    """
    said = sorted({one for path in paths for one in _meanings(path)})
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


@functools.cache
def _meanings(path: Path) -> tuple[str, ...]:
    text = path.read_text()
    if path.suffix == ".py":
        return tuple(ast.dump(node) for node in _Meaning().visit(ast.parse(text)).body)
    return (json.dumps(yaml.safe_load(text)) if path.suffix == ".yaml" else text,)


class _Meaning(ast.NodeTransformer):
    """Leaves out imports, docstrings, and blocks that hold nothing else."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """`if TYPE_CHECKING:` goes with its imports."""
        kept = self.generic_visit(node)
        return kept if node.body or node.orelse else None
