"""Emulations share the machine's cores, so they take the machine lock instead of running beside another's."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from testbed.orchestrator.supervise import MACHINE_LOCK


@pytest.fixture(scope="session")
def machine_lock() -> Iterator[None]:
    """Held by the whole session; the runs it starts are told to share."""
    MACHINE_LOCK.parent.mkdir(parents=True, exist_ok=True)
    with MACHINE_LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
