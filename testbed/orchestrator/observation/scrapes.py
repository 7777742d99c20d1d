"""Who scrapes a run, how often, and what it has got: a run ends no sooner than its last values have been read."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque

ENOUGH = 2
"""Scrapes of the last values: one may come too late for its own time limit, and then Prometheus keeps nothing of it."""
LONGEST_S = 10.0
"""Whoever scrapes more seldom than every five seconds cannot ask a run to wait for two of them."""
_KEPT = 8


class Scrapes:
    """The last few. Any thread may add, another wait."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._last: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        """When, and how many events the values were after."""

    def add(self, events: int) -> None:
        """One was answered with the values as they were after so many events."""
        with self._condition:
            self._last.append((time.monotonic(), events))
            self._condition.notify_all()

    def interval_s(self) -> float | None:
        """The longest of the last; None where nobody scrapes, or no longer."""
        times = [at_s for at_s, _ in self._last]
        longest_s = max((after - before for before, after in itertools.pairwise(times)), default=None)
        if longest_s is None or time.monotonic() - times[-1] > ENOUGH * longest_s:
            return None
        return longest_s

    def wait_for(self, events: int) -> None:
        """Return when the values after so many events were read twice; at once where nobody scrapes."""
        with self._condition:
            interval_s = self.interval_s()
            if interval_s is None:
                return
            deadline_s = time.monotonic() + min(LONGEST_S, (ENOUGH + 1) * interval_s)
            while sum(got >= events for _, got in self._last) < ENOUGH:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return
                self._condition.wait(left_s)
