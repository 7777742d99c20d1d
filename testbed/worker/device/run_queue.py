"""How long this process's communication waited for a core: what pacing cannot make good."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_NANOSECOND_S = 1e-9
COLLECTIVES = "collectives"
"""Name of the thread in which our own collectives run."""


class RunQueueDelay:
    """Run-queue waits of the threads that move messages: gloo's, which are not Python's, and that of our collectives.

    The main thread's waits are part of its phases, and evaluation yields to all others by intent. Of a collective, in
    which each rank handles as many messages one after another, the mean over ranks of these waits is what the waits add
    to its duration, at least.
    """

    def __init__(self) -> None:
        self._before: dict[str, float] | None = None
        """When the first collective since the last call began; None until one does."""

    def begin(self) -> None:
        """From now on something is under way, if it was not yet. What threads wait before is no message's: gloo's loop
        looks for some a hundred times a second."""
        if self._before is None:
            self._before = self._read_s()

    def take_s(self, *, under_way: bool = False) -> float:
        """Wall seconds since the last call; 0 where the kernel does not say (without schedstat).

        Args:
            under_way: something still is.
        """
        before = self._before
        if before is None:
            return 0.0
        now = self._read_s()
        self._before = now if under_way else None
        return sum(max(0.0, waited - before.get(task, 0.0)) for task, waited in now.items())

    @staticmethod
    def _read_s() -> dict[str, float]:
        others = (t for t in threading.enumerate() if t is not threading.main_thread() and t.name != COLLECTIVES)
        # not the native_id of the main thread: Python 3.11 leaves a forked process its parent's
        ours = {str(os.getpid()), *(str(thread.native_id) for thread in others)}
        waits: dict[str, float] = {}
        for task in os.listdir("/proc/self/task"):
            if task not in ours:
                try:
                    waits[task] = int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[1]) * _NANOSECOND_S
                except OSError:  # it has ended
                    continue
        return waits
