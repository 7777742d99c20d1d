"""How long this process's communication waited for a core: what pacing cannot make good."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_NANOSECOND_S = 1e-9
COLLECTIVES = "collectives"
"""Name of the thread in which our own collectives run."""


class Queueing:
    """Run-queue waits of the threads that move messages: gloo's, which are not Python's, and that of our collectives.

    The main thread's waits are part of its phases, and evaluation yields to all others by intent. Of a collective, in
    which each rank handles as many messages one after another, the mean over ranks of these waits is what the waits add
    to its duration, at least.
    """

    def __init__(self) -> None:
        self._before = self._read_s()

    def take_s(self) -> float:
        """Wall seconds since the last call; 0 where the kernel does not say (without schedstat)."""
        before, self._before = self._before, self._read_s()
        return sum(max(0.0, now - before.get(task, 0.0)) for task, now in self._before.items())

    @staticmethod
    def _read_s() -> dict[str, float]:
        ours = {str(thread.native_id) for thread in threading.enumerate() if thread.name != COLLECTIVES}
        waits: dict[str, float] = {}
        for task in os.listdir("/proc/self/task"):
            if task not in ours:
                try:
                    waits[task] = int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[1]) * _NANOSECOND_S
                except OSError:  # it has ended
                    continue
        return waits
