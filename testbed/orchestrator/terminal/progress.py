"""How far some work is, how fast it goes and how long it still takes. Nothing here looks at a clock."""

from __future__ import annotations

from collections import deque

from testbed.orchestrator.terminal.spoken import spoken_left

SPARSE_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds from one line of a log to the next; the last again and again, so that a day has no more than 1440."""


class Progress:
    """Work of a known number of items, such as steps, laws or runs.

    The speed is that of the later half of what is done: the first items may have been under other conditions.

    Args:
        what: Plural noun for the items, such as "laws".
        total: Number of items; None if it is not known.
        cycle: Number of items that only together tell how long they take, such as the steps from one exchange to the
            next: all but the last come in a burst.
    """

    def __init__(self, what: str, total: float | None = None, cycle: int = 1) -> None:
        self.what = what
        self.total = total
        self.cycle = cycle
        self.done = 0.0
        """Number of items done."""
        self._seen: deque[tuple[float, float]] = deque()
        """Times in seconds, and the number of items done by then, in whole cycles."""
        self._first = 0.0

    def at(self, done: float, now_s: float) -> None:
        """Take in that `done` items are done at `now_s`. Fewer than before mean that it began again."""
        if not self._seen or done < self.done:
            # another queue, not an emptied one: a thread that draws may read the one before
            self._seen, self._first = deque([(now_s, done)]), done
        elif (whole := done - (done - self._first) % self.cycle) > self._seen[-1][1]:
            self._seen.append((now_s, whole))
        self.done = done
        middle = (self._first + self._seen[-1][1]) / 2
        while len(self._seen) > 2 and self._seen[1][1] <= middle:
            self._seen.popleft()

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds until all is done; None before there is a speed to go by, or if no total is known.

        A cycle that takes longer than those before it stops the count-down at what comes after it.
        """
        if self.total is None or not self._seen:
            return None
        if self.done >= self.total:
            return 0.0
        (began_s, first), (last_s, done) = self._seen[0], self._seen[-1]
        if done <= first or last_s <= began_s:
            return None
        item_s = (last_s - began_s) / (done - first)
        lacking = self.total - done
        return max(item_s * lacking - (now_s - last_s), item_s * (lacking - self.cycle), 0.0)

    def words(self, now_s: float) -> str:
        """Return all of it as "laws 12/47, 35 s left"."""
        of = "" if self.total is None else f"/{self.total:g}"
        return ", ".join(filter(None, [f"{self.what} {self.done:g}{of}", spoken_left(self.left_s(now_s))]))


class SparseTimes:
    """Times at which a log gets a line: soon at first, then once a minute.

    Args:
        first_s: Time of the first.
    """

    def __init__(self, first_s: float) -> None:
        self._due_s = first_s
        self._passed = 0

    def is_due(self, now_s: float) -> bool:
        """Return True if a line is due, which counts as written then."""
        if now_s < self._due_s:
            return False
        self._due_s = now_s + SPARSE_S[min(self._passed, len(SPARSE_S) - 1)]
        self._passed += 1
        return True
