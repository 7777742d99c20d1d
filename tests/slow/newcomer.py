"""A clone of this tree with nothing in it but the tree, as a newcomer has it, and how long commands take there."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.slow.support import ROOT, run

SETUP = "make setup"


class Clone:
    """
    Args:
        path: where it lies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.took_s: list[tuple[str, float]] = []
        """Every command that was typed in it, in order."""

    @contextmanager
    def timed(self, command: str) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.took_s.append((command, time.monotonic() - began_s))

    def run(self, command: str, limit_s: float) -> subprocess.CompletedProcess[str]:
        with self.timed(command):
            return run(command, limit_s, self.path)

    def run_ids(self) -> set[str]:
        runs = self.path / "runs"
        return {path.name for path in runs.iterdir()} if runs.exists() else set()


def cloned(place: Path) -> Clone:
    """Of what is committed, with what is not over it."""
    _git("clone", "--quiet", str(ROOT), str(place))
    changed = _git("diff", "--name-only", "--no-renames", "-z", "HEAD")
    changed += _git("ls-files", "--others", "--exclude-standard", "-z")
    for name in filter(None, changed.split("\0")):
        source, target = ROOT / name, place / name
        target.unlink(missing_ok=True)
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return Clone(place)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
