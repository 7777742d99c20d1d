"""The code as the layout's rules see it: files, the folders they lie in, and which file imports which.

An import counts wherever it stands: under TYPE_CHECKING and inside a function too.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

CODE = ("testbed", "compressors", "topologies", "dashboards", "longhaul", "experiments")
SIDES = {
    "orchestrator": ("testbed/orchestrator/",),
    "inside the nodes": ("testbed/worker/", "compressors/"),
    "analysis": ("testbed/analysis/",),
}
MAX_MODULES = 12
MAX_DEPTH = 4
FAMILIES = frozenset(
    {
        "compressors",
        "compressors/parts",
        "dashboards/boards",
        "testbed/worker/laws",
        "testbed/worker/strategies",
        "testbed/worker/transforms",
        "testbed/worker/workloads",
        "topologies",
    }
)
"""Folders of plug-ins, one file each, which may hold more than MAX_MODULES."""

Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Tree:
    """Python files of the code, by their paths below `root`."""

    root: Path
    imports: dict[str, set[str]]
    """Per file, the files of the tree that it imports."""
    programs: frozenset[str]
    """Files that run as programs: `__main__.py`, and those that ask for `__name__`."""


def read_tree(root: Path) -> Tree:
    files = {path.relative_to(root).as_posix(): path for folder in CODE for path in _python(root / folder)}
    modules = {_module(path): path for path in files}
    imports, programs = {}, set()
    for path, file in files.items():
        parsed = ast.parse(file.read_text())
        imports[path] = _targets(parsed, path, modules) - {path}
        if path.endswith("/__main__.py") or any(map(_asks_for_name, parsed.body)):
            programs.add(path)
    return Tree(root, imports, frozenset(programs))


def full_folders(tree: Tree) -> dict[str, int]:
    """Folders of more than MAX_MODULES modules, families apart, and how many they hold."""
    counts: dict[str, int] = {}
    for path in tree.imports:
        if PurePosixPath(path).name not in ("__init__.py", "__main__.py"):
            counts[folder_of(path)] = counts.get(folder_of(path), 0) + 1
    return {folder: n for folder, n in counts.items() if n > MAX_MODULES and folder not in FAMILIES}


def deep_folders(tree: Tree) -> set[str]:
    """Folders more than MAX_DEPTH levels below the top one."""
    return {folder for folder in map(folder_of, tree.imports) if folder.count("/") > MAX_DEPTH}


def cycle(graph: Graph) -> list[str]:
    """Nodes of one cycle, of which each imports the next and the first is also the last; none: empty."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def folder_imports(tree: Tree) -> dict[str, set[str]]:
    """Per folder, the folders whose files its own files import. A folder and one inside it are two folders.

    The `__init__.py` of a package above is left out: every import in that package runs it.
    """
    graph: dict[str, set[str]] = {}
    for path, targets in tree.imports.items():
        ours = folder_of(path)
        inits = {f"{above}/__init__.py" for above in map(str, PurePosixPath(ours).parents)}
        graph.setdefault(ours, set()).update(folder_of(target) for target in targets - inits)
    return {folder: targets - {folder} for folder, targets in graph.items()}


def sibling_imports(tree: Tree) -> dict[str, dict[str, set[str]]]:
    """Per parent folder, which of its folders imports which, each with all that lies below it."""
    graphs: dict[str, dict[str, set[str]]] = {}
    for path, targets in tree.imports.items():
        for target in targets:
            ours, theirs = PurePosixPath(path).parent.parts, PurePosixPath(target).parent.parts
            shared = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
            if shared:  # at the top there are sides, whose directions the import contracts say
                graph = graphs.setdefault("/".join(ours[:shared]), {})
                graph.setdefault(ours[shared], set()).add(theirs[shared])
    return graphs


def one_sided(tree: Tree) -> set[str]:
    """Modules of the core that fewer than two sides reach, directly or through other modules of the core."""
    core = {path for path in tree.imports if path.startswith("testbed/core/")}
    reached = [
        _closure({path for path in tree.imports if path.startswith(folders)}, tree.imports, into=core)
        for folders in SIDES.values()
    ]
    return {path for path in core if sum(path in side for side in reached) < 2 and not path.endswith("/__init__.py")}


def unreached(tree: Tree, dynamic: Iterable[str] = ()) -> set[str]:
    """Modules that no program of the repository imports, directly or through others.

    Programs are `python -m` modules, the console scripts of pyproject.toml, scripts/, and what a YAML file names as
    `_target_`.

    Args:
        dynamic: globs of files that a program finds by name.
    """
    modules = {_module(path): path for path in tree.imports}
    roots = set(tree.programs)
    for name in (*_console_scripts(tree.root), *_yaml_targets(tree.root)):
        roots |= _files_of(name, modules)
    for script in _python(tree.root / "scripts"):
        roots |= _targets(ast.parse(script.read_text()), "scripts/" + script.name, modules)
    for pattern in dynamic:
        roots |= {path.relative_to(tree.root).as_posix() for path in tree.root.glob(pattern)}
    found = roots | _closure(roots, tree.imports, into=set(tree.imports))
    return {path for path in tree.imports if path not in found and not path.endswith("/__init__.py")}


def unmirrored(root: Path) -> set[str]:
    """Folders of tests/unit that hold tests and are no folder of the code; those of testbed/ leave that name out."""
    unit = root / "tests" / "unit"
    folders = {test.parent.relative_to(unit) for test in unit.rglob("test_*.py")}
    return {
        folder.as_posix()
        for folder in folders
        if not (root / folder).is_dir() and not (root / "testbed" / folder).is_dir()
    }


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _python(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.py") if "node_modules" not in path.parts)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _targets(parsed: ast.AST, path: str, modules: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found |= _files_of(alias.name, modules)
        elif isinstance(node, ast.ImportFrom):
            above = path.split("/")[: -node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                found |= _files_of(f"{module}.{alias.name}", modules)
    return found


def _files_of(name: str, modules: Mapping[str, str]) -> set[str]:
    """The file of the longest beginning of a dotted name that is a module."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return {modules[name]} if name else set()


def _asks_for_name(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _closure(start: Iterable[str], graph: Graph, *, into: set[str]) -> set[str]:
    """Return what `start` imports of `into`, directly or through others; a module loads the packages it is in."""
    found: set[str] = set()
    waiting = [target for path in start for target in graph[path]]
    while waiting:
        path = waiting.pop()
        if path in into and path not in found:
            found.add(path)
            above = {f"{parent}/__init__.py" for parent in PurePosixPath(path).parents}
            waiting += graph[path] | (above & graph.keys())
    return found


def _console_scripts(root: Path) -> Iterator[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return (target.replace(":", ".") for target in project.get("scripts", {}).values())


def _yaml_targets(root: Path) -> Iterator[str]:
    for folder in CODE:
        for file in (root / folder).rglob("*.yaml"):
            if "node_modules" not in file.parts:
                yield from re.findall(r"""_target_:\s*["']?([\w.]+)""", file.read_text())
