"""When the packets of a direction are due, and how far from that they left: pure, so that it is tested without them."""

from __future__ import annotations

import math
from typing import Any

OLDEST_STAMP_S = 2.0
"""A stamp further back is not believed: the wall clock was set, or this process did not run for so long."""


class DueTimes:
    """All times are of the monotonic clock."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self._last_due_s = 0.0
        self._begin_interval()

    def _begin_interval(self) -> None:
        self.late_s: list[float] = []
        self._due = 0
        self._sum_s = self._sum_of_squares = 0.0

    def arrived_s(self, stamp_s: float | None, now_s: float) -> float:
        """When a packet that is read now arrived, by its stamp; None: the kernel gave none."""
        if stamp_s is None or stamp_s > now_s:
            return now_s
        if stamp_s <= now_s - OLDEST_STAMP_S:
            # it gets its delay from now on, and so leaves as late as it was read
            self.late_s.append(now_s - stamp_s)
            return now_s
        return stamp_s

    def due_s(self, arrived_s: float, delay_s: float) -> float:
        """Never before a packet that arrived earlier."""
        due_s = arrived_s + delay_s
        if due_s < self._last_due_s:
            due_s = self._last_due_s
            delay_s = due_s - arrived_s
        self._last_due_s = due_s
        self._due += 1
        self._sum_s += delay_s
        self._sum_of_squares += delay_s * delay_s
        return due_s

    def figures(self) -> dict[str, Any]:
        """Of the packets since the last call: their lateness, and the delays that they got beside it."""
        late_s = sorted(self.late_s)
        figures: dict[str, Any] = {
            name: late_s[min(len(late_s) - 1, int(share * len(late_s)))] if late_s else None
            for name, share in (("late_p50_s", 0.5), ("late_p99_s", 0.99), ("late_max_s", 1.0))
        }
        mean_s = self._sum_s / self._due if self._due else None
        figures["delay_mean_s"] = mean_s
        figures["delay_deviation_s"] = (
            None if mean_s is None else math.sqrt(max(0.0, self._sum_of_squares / self._due - mean_s * mean_s))
        )
        self._begin_interval()
        return figures
