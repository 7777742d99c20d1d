"""`make wheel`: the wheel `longhaul`, with the package of this name and the modules of the testbed that it imports.

make_wheel.py [FOLDER]: where it lies then; build/ without. Nothing is fetched.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "longhaul"
_PACKAGES = (PACKAGE, "testbed")
"""First names of modules that may be in the wheel; the import contracts keep the others out."""
_DATA = ("*.js",)
"""Files that lie next to modules and are read by them."""


def main(arguments: list[str]) -> int:
    """Build the wheel and print where it is; return the exit status."""
    folder = Path(arguments[0]) if arguments else ROOT / "build"
    with tempfile.TemporaryDirectory() as staged:
        stage(Path(staged))
        built = Path(staged) / "wheel"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        # setuptools takes the folder that it builds in to be a package of another tree if PYTHONPATH leads there
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run([*command, "-w", built, staged], env=environment, check=False)
        if done.returncode != 0:
            return done.returncode
        (wheel,) = built.glob(f"{PACKAGE}-*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, folder)
    print(folder / wheel.name)
    return 0


def stage(folder: Path) -> None:
    """Copy what the wheel holds, with its pyproject.toml, to an empty folder."""
    shutil.copy(ROOT / PACKAGE / "pyproject.toml", folder)
    shutil.copy(ROOT / "LICENSE", folder)
    for path in needed():
        copies = [path, *(data for pattern in _DATA for data in path.parent.glob(pattern))]
        for one in copies:
            to = folder / one.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(one, to)


def needed() -> list[Path]:
    """Return the files of the package and of all modules of ours that they import, also inside functions."""
    found: set[Path] = set()
    todo = sorted((ROOT / PACKAGE).rglob("*.py"))
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _imported(path)
    return sorted(found)


def _imported(path: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.partition(".")[0] in _PACKAGES:
                yield from _files(name)


def _files(module: str) -> Iterator[Path]:
    """Yield the file of a module, and those of the packages around it."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        place = ROOT.joinpath(*parts[:depth])
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
