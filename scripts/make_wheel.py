"""`make wheel` and `make wheel-compressors`: wheels for other people's environments, each with what it imports of ours.

make_wheel.py NAME [FOLDER]: `longhaul` or `longhaul-compressors`, and where it lies then; build/ without. Nothing is
fetched.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "experiments" / "conf" / "compressor"


@dataclass(frozen=True)
class Wheel:
    """Declaration of one wheel."""

    name: str
    project: str
    """Folder of its pyproject.toml."""
    begins: tuple[str, ...]
    """Files and folders whose imports it follows."""
    packages: tuple[str, ...]
    """First names of modules that may be in it; the import contracts keep the others out."""
    data: tuple[str, ...] = ()
    """Files that lie next to modules and are read by them."""
    catalogue: str = ""
    """File in it for compressors' names, classes and defaults, as JSON: it has no YAML."""


WHEELS = (
    Wheel("longhaul", "longhaul", ("longhaul",), ("longhaul", "testbed"), ("*.js",)),
    Wheel(
        "longhaul-compressors",
        "compressors",
        ("compressors", "testbed/worker/script/ddp_hook.py"),
        ("compressors", "testbed"),
        catalogue="testbed/worker/script/compressors.json",
    ),
)


def main(arguments: list[str]) -> int:
    """Build a wheel and print where it is; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=[wheel.name for wheel in WHEELS])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as staged:
        stage(of(given.name), Path(staged))
        built = Path(staged) / "wheel"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        # setuptools takes the folder that it builds in to be a package of another tree if PYTHONPATH leads there
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run([*command, "-w", built, staged], env=environment, check=False)
        if done.returncode != 0:
            return done.returncode
        (found,) = built.glob("*.whl")
        given.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(found, given.folder)
    print(given.folder / found.name)
    return 0


def of(name: str) -> Wheel:
    """Return the wheel of a name."""
    (found,) = [wheel for wheel in WHEELS if wheel.name == name]
    return found


def stage(wheel: Wheel, folder: Path) -> None:
    """Copy what the wheel holds, with its pyproject.toml, to an empty folder."""
    shutil.copy(ROOT / wheel.project / "pyproject.toml", folder)
    shutil.copy(ROOT / "LICENSE", folder)
    for path in needed(wheel):
        copies = [path, *(data for pattern in wheel.data for data in path.parent.glob(pattern))]
        for one in copies:
            to = folder / one.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(one, to)
    if wheel.catalogue:
        settings = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(CONF.glob("*.yaml"))}
        (folder / wheel.catalogue).write_text(json.dumps(settings, indent=1) + "\n")


def needed(wheel: Wheel) -> list[Path]:
    """Return the files where the wheel begins and of all modules of ours that they import, also inside functions."""
    found: set[Path] = set()
    todo = [file for begin in wheel.begins for file in _python_files(ROOT / begin)]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += imported(path, wheel.packages)
    return sorted(found)


def _python_files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def imported(path: Path, packages: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of modules that one imports, also inside functions, of packages that are named."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.partition(".")[0] in packages:
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
