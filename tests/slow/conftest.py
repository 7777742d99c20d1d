"""What slow tests share: one clone, set up once, and the machine for no longer than a file needs it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine import machine_held
from tests.slow.newcomer import SETUP, Clone, cloned

SETUP_LIMIT_S = 1200.0


@pytest.fixture(scope="session")
def clone() -> Iterator[Clone]:
    """Debian's packages are those of this machine, and pip may have files of its own from before."""
    with tempfile.TemporaryDirectory(prefix="longhaul-clone-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)  # processes of nodes are nobody's
        one = cloned(folder / "longhaul")
        done = one.run(SETUP, SETUP_LIMIT_S)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        yield one


@pytest.fixture(scope="module")
def machine_lock() -> Iterator[None]:
    """As everywhere, but for the tests of one file: those of others type commands that insist on the machine."""
    with machine_held():
        yield
