"""A clone in which mutants are tested, with an installation of its own, so that the user's tree is never written."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.mutation.draw import Mutant

STOPPING_S = 30
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\S+?(?:\[.*?\])?)?)(?: - .*)?$", re.MULTILINE)
_OURS = ("__editable__", "longhaul-")
"""Beginnings of the names in site-packages that hold paths of the clone they were installed for."""
_PACKAGES = "compressors, dashboards, testbed, topologies"


class Broken(Exception):
    """Mutants cannot be tested, and why."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int | None
    """None if it was stopped after the time limit."""
    seconds: float
    caught_by: str
    """The first failed test, or the last line of output if no test is named. Without meaning if the command passed."""


def prepare(root: Path, commit: str, tree: Path) -> None:
    """Make `tree` a clone of `root` at a commit, without what an interrupted call has left planted."""
    ready = tree / ".git" / "ready"
    if ready.exists() and ready.read_text() == commit:
        git(tree, "reset", "--quiet", "--hard", commit)
    else:
        _make(root, commit, tree)
        ready.write_text(commit)


def _make(root: Path, commit: str, tree: Path) -> None:
    """Clone a commit and give the clone a copy of the virtual environment.

    `make setup` in the tree then sees that this was moved, and installs whatever differs.
    """
    if tree.exists():
        shutil.rmtree(tree)
    git(root, "clone", "--quiet", "--no-checkout", str(root), str(tree))
    git(tree, "checkout", "--quiet", "--detach", commit)
    if (root / ".venv").is_dir():
        _copy_environment(root, tree)
        _require_own_code(tree)


def _copy_environment(root: Path, tree: Path) -> None:
    """Link packages; copy console scripts and the editable installation, and write the new path into them."""
    copies: list[Path] = []

    def copy(source: str, target: str) -> None:
        below = Path(source).relative_to(root / ".venv").parts
        if "site-packages" in below and not below[below.index("site-packages") + 1].startswith(_OURS):
            try:
                os.link(source, target)
                return
            except OSError:  # another file system, or a file of another user
                pass
        copies.append(Path(shutil.copy2(source, target)))

    shutil.copytree(root / ".venv", tree / ".venv", symlinks=True, copy_function=copy)
    path = re.compile(re.escape(os.fsencode(root)) + rb"(?![\w.-])")
    for file in copies:
        content = file.read_bytes()
        if path.search(content):
            file.write_bytes(path.sub(os.fsencode(tree), content))


def _require_own_code(tree: Path) -> None:
    """Refuse a tree whose installation imports the code of another, wherever a process of its tests starts."""
    command = [tree / ".venv/bin/python", "-B", "-c", f"import {_PACKAGES}; print({_PACKAGES}, sep='\\n')"]
    done = subprocess.run(command, cwd="/", env=environment(), capture_output=True, text=True, check=False)
    if done.returncode or any(f"'{tree}/" not in line for line in done.stdout.splitlines()):
        raise Broken(f"{tree} does not import its own code:\n{done.stdout}{done.stderr}")


@contextmanager
def planted(tree: Path, mutant: Mutant, number: int) -> Iterator[None]:
    """The tree with a mutant in it.

    Python finds cached bytecode by a source's size and time, so each number has a time of its own.
    """
    path = tree / mutant.path
    text, times = path.read_text(), path.stat()
    path.write_text(mutant.plant(text))
    os.utime(path, (times.st_atime, int(times.st_mtime) - number))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def run(tree: Path, command: str, log: Path, limit_s: float, lock: int) -> Outcome:
    """Run a command in the tree until it ends, or until its limit.

    Args:
        log: Takes the output.
        lock: File descriptor that the command's processes keep open as long as they live.
    """
    began_s = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=tree,
            env=environment() | {"PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} -x".strip()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock],
        )
        status: int | None = None
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _stop(process)
    text = log.read_text(errors="replace")
    failed = _FAILURE.search(text)
    last = (text.strip().splitlines() or ["no output"])[-1]
    caught_by = failed[1] if failed else f"the command itself ({last})"
    return Outcome(status, time.monotonic() - began_s, caught_by)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a command as Ctrl-C would, so that tests clean up; what does not end is killed."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOPPING_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def environment() -> dict[str, str]:
    """Environment of this process without the variables that lead Python to another tree."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"git {words[0]} in {folder}: {done.stderr.strip()}")
    return done.stdout.strip()
