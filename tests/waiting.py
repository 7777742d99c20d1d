"""Waits of tests: long, since others use the machine too, and with a name for what hung."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

HANG_S = 200.0
"""After which what has not come hangs. pytest ends a test after 300 s, and knows no more than the line."""


def wait_until(holds: Callable[[], bool], what: str, limit_s: float = HANG_S) -> None:
    """
    Args:
        what: is waited for, for whoever reads the failure.

    Raises:
        AssertionError: it has not come within `limit_s`.
    """
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, f"hung for {limit_s:g} s: {what}"
        time.sleep(0.02)


def in_background(work: Callable[[], object], name: str | None = None) -> threading.Thread:
    """In a thread that does not keep the process from its end where it hangs."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def joined(*threads: threading.Thread, limit_s: float = HANG_S) -> None:
    """All have ended.

    Raises:
        AssertionError: one has not within `limit_s`; names it.
    """
    end_s = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    left = ", ".join(thread.name for thread in threads if thread.is_alive())
    assert not left, f"hung for {limit_s:g} s: the thread {left}"
