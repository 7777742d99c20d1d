"""An environment that holds a wheel and what it needs alone, made without a network."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

LIMIT_S = 200.0


def needed(requirement: str, known: set[str]) -> set[str]:
    """Return what a requirement brings, by name, itself included."""
    name = re.split(r"[<>=!~;\[ (]", requirement, maxsplit=1)[0]
    if name in known:
        return set()
    known.add(name)
    inner = importlib.metadata.requires(name) or []
    for one in inner:
        _, _, marker = one.partition(";")
        if "extra" not in marker and is_installed(one):
            needed(one, known)
    return known


def is_installed(requirement: str) -> bool:
    """Return True if a requirement is installed; what is not was left out by its marker, such as for other systems."""
    try:
        importlib.metadata.distribution(re.split(r"[<>=!~;\[ (]", requirement, maxsplit=1)[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def entries(name: str) -> Iterator[Path]:
    """Yield what a distribution has put into site-packages, each first-level entry once."""
    files = importlib.metadata.files(name)
    assert files, f"{name} does not say which files it has"
    tops = {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}
    base = Path(str(files[0].locate())).parents[len(files[0].parts) - 1]
    return (base / top for top in sorted(tops))


def bare_python(folder: Path, wheel: Path, requirements: Sequence[str]) -> Path:
    """Return the Python of a new environment in `folder` that has nothing but the wheel and some requirements.

    These are links to what is installed here, since torch alone has hundreds of megabytes.
    """
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder], timeout=LIMIT_S, check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    known: set[str] = set()
    for requirement in requirements:
        needed(requirement, known)
    for entry in {entry for name in known for entry in entries(name)}:
        (site / entry.name).symlink_to(entry)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(command, env=clean_environment(), timeout=LIMIT_S, check=True)
    return folder / "bin" / "python"


def clean_environment() -> dict[str, str]:
    """Return this process's environment without a way to this tree."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {"OMP_NUM_THREADS": "1"}
