"""The main thread's time, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

COMPUTE_PHASES = frozenset({"forward", "backward", "compress", "decompress", "optimizer"})
WAITING = "exposed_communication"


class PhaseClock:
    """Charges wall time to the innermost open phase; seconds are emulated ones.

    With dilation k, a compute phase that took c CPU seconds is made to last k*c on the wall, so that computing slows
    down as much as the network does. With k = 1 it never sleeps.
    """

    def __init__(self, dilation: float = 1.0) -> None:
        self.dilation = dilation
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since_s = 0.0
        self._cpu_since_s = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Spend time in `name`; the phase around it is suspended."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """Emulated seconds per phase since the last call."""
        seconds, self._seconds = self._seconds, {}
        return {name: value / self.dilation for name, value in seconds.items()}

    def _charge(self) -> None:
        if self._open:
            name = self._open[-1]
            if self.dilation > 1 and name in COMPUTE_PHASES:
                due_s = self._since_s + self.dilation * (time.thread_time() - self._cpu_since_s)
                time.sleep(max(0.0, due_s - time.monotonic()))
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - self._since_s
        self._since_s, self._cpu_since_s = time.monotonic(), time.thread_time()
