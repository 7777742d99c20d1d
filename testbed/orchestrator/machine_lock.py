"""One emulation at a time on a machine, since two would share its cores; `--share` lets one in beside others."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from typing import IO

from testbed.core.errors import MachineError
from testbed.core.rundir import RUNTIME_ROOT

MACHINE_LOCK = RUNTIME_ROOT / "machine.lock"
SHARED_LOCK = RUNTIME_ROOT / "shared.lock"


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
    RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
    with MACHINE_LOCK.open("w") as alone, SHARED_LOCK.open("w") as shared:
        if share:
            fcntl.flock(shared, fcntl.LOCK_SH)
        elif _try_lock(alone, fcntl.LOCK_EX) and _try_lock(shared, fcntl.LOCK_EX):
            fcntl.flock(shared, fcntl.LOCK_UN)  # nobody shares now; whoever does later is found by `look`
        else:
            raise MachineError(
                "another run is going on this machine, and two would share its cores: wait for it, or give --share"
            )
        yield MachineLock(shared, share=share)


def _try_lock(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
