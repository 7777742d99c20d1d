"""A user without any rights, for a test: a number that nobody has, with a home of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UID = 61_234
"""No name, no groups, no files but those below its home."""


@dataclass(frozen=True)
class User:
    home: Path

    @property
    def runtime(self) -> Path:
        """What its runs have beside their records."""
        return self.home / f"longhaul-{UID}"

    def wrapper(self, **environment: str) -> tuple[str, ...]:
        """A command's first words: it is run by the user."""
        given = {"HOME": str(self.home), "TMPDIR": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        return (
            *("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--inh-caps=-all", "--pdeathsig=KILL"),
            *("env", "--chdir", str(self.home), *(f"{name}={value}" for name, value in given.items())),
        )

    def processes(self) -> list[int]:
        """All that still live."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{entry}").stat().st_uid == UID:
                    found.append(int(entry))
        return found


@contextlib.contextmanager
def user() -> Iterator[User]:
    """Not below pytest's own directory, which is closed to others; the path is short, as sockets want it."""
    home = Path(tempfile.mkdtemp(prefix="longhaul-"))
    os.chown(home, UID, UID)
    try:
        yield User(home)
    finally:
        shutil.rmtree(home)
