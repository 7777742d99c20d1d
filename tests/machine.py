"""The machine alone, by the lock that `longhaul run` takes too, and nothing left on it."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.core.record.run_directory import RUNTIME_ROOT

LIMIT_S = 250.0
"""For the machine to become free; pytest ends a test after 300 s, and could not say what it waited for."""
ENDS_WITH_TESTS = ("setpriv", "--pdeathsig", "KILL")
"""Before a command: tests that are stopped half-way leave nothing that goes on by itself."""


@contextmanager
def machine_held() -> Iterator[None]:
    """No other run's load falls into what a test measures. Runs that the tests start themselves are told to share."""
    RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + LIMIT_S
    with (RUNTIME_ROOT / "machine.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    pytest.fail(f"another run has held this machine for {LIMIT_S:.0f} s")
                time.sleep(0.2)
        yield
