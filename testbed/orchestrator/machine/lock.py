"""One emulation at a time on a machine, since two would share its cores; `--share` lets one in beside others.

Users other than root lock root's files, where there are any: a lock needs no right to write. Until root has made a run
on the machine each of them has files of their own, and sees nobody else's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from testbed.core.errors import MachineError
from testbed.core.record.run_directory import RUNTIME_ROOT, make_runtime_root, runtime_root

MACHINE_LOCK = RUNTIME_ROOT / "machine.lock"
SHARED_LOCK = RUNTIME_ROOT / "shared.lock"


_held: list[MachineLock] = []
"""By this process."""


class MachineLock:
    """What is held. Who came alone holds the first file; who shares holds the second, together with others."""

    def __init__(self, shared: IO[str], *, share: bool) -> None:
        self._shared = shared
        self.is_shared = share
        """Whether others may be there: `--share` was given, or `look` found somebody to whom it was."""

    def look(self) -> None:
        """Find out whether somebody shares the machine by now. Held for a moment: who comes just then waits."""
        if self.is_shared:
            return
        if _try_lock(self._shared, fcntl.LOCK_EX):
            fcntl.flock(self._shared, fcntl.LOCK_UN)
        else:
            self.is_shared = True


@contextlib.contextmanager
def machine_lock(*, share: bool) -> Iterator[MachineLock]:
    """Raises:
    MachineError: another run has the machine, and `share` is not given.
    """
    make_runtime_root(RUNTIME_ROOT)
    with _opened(MACHINE_LOCK) as alone, _opened(SHARED_LOCK) as shared:
        if share:
            fcntl.flock(shared, fcntl.LOCK_SH)
        elif _try_lock(alone, fcntl.LOCK_EX) and _try_lock(shared, fcntl.LOCK_EX):
            fcntl.flock(shared, fcntl.LOCK_UN)  # nobody shares now; whoever does later is found by `look`
        else:
            raise MachineError(BUSY)
        held = MachineLock(shared, share=share)
        _held.append(held)
        try:
            yield held
        finally:
            _held.remove(held)


BUSY = "another run is going on this machine: wait for it, or give --share (timing may be unreliable)"


def require_free(*, share: bool = False) -> None:
    """Look whether a run may begin, and hold nothing.

    Args:
        share: True if it may begin beside others.

    Raises:
        MachineError: Another run has the machine. What else keeps it from being locked is told once it is.
    """
    if share or _held:
        return
    try:
        with machine_lock(share=False):
            pass
    except MachineError as error:
        if BUSY in error.faults:
            raise


@contextlib.contextmanager
def held_if_free() -> Iterator[bool]:
    """For what is measured on the cores: whether this process holds the machine meanwhile, be it shared or not."""
    if _held:
        yield True
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(machine_lock(share=False))
        except MachineError:
            is_held = False
        else:
            is_held = True
        yield is_held


def _is_root() -> bool:
    return os.geteuid() == 0


def _opened(lock: Path) -> IO[str]:
    with contextlib.suppress(FileNotFoundError):
        if not _is_root():
            return (runtime_root(0) / lock.name).open("r")
    return lock.open("w")


def _try_lock(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
