"""The way of workers' messages to the record: checked, no faster than a run bears, no more than memory holds.

A worker runs a user's code, which can say far more than the orchestrator can keep. Whoever says too much is made to
wait at its own socket, and the record says so.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from testbed.core.record.events.machine import HeldBack
from testbed.orchestrator.run.workers.messages import Message, checked_message

MESSAGES_S, BURST = 2_000.0, 20_000
"""A rank that takes a step in a millisecond says some 1,000 a second."""
BYTES_S, BURST_BYTES = 4e6, 64_000_000
MIN_HELD_S = 0.1
"""Shorter waits are not told of: they change nothing that is measured."""
MAX_NAMES = 1_000
"""Bound of the metrics that one worker names."""
MAX_BYTES = 2_000_000_000
"""Bound of the messages of one worker in one run."""
INBOX_BYTES = 64_000_000
"""Bound of all messages that are not recorded yet."""
_EARLY_S = 1.0
"""By which a moment may precede the first step, or follow the present one: clocks are read one after the other."""
T = TypeVar("T")


class Inbox(Generic[T]):
    """Queue whose puts wait while it holds too many bytes."""

    def __init__(self, most_bytes: int = INBOX_BYTES) -> None:
        self._most_bytes = most_bytes
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T, size_bytes: int = 0) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._items or self._bytes + size_bytes <= self._most_bytes)
            self._items.append((item, size_bytes))
            self._bytes += size_bytes
            self._changed.notify_all()

    def get(self, timeout: float) -> T:
        """Return the oldest item.

        Raises:
            queue.Empty: There is none in `timeout`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout):
                raise queue.Empty
            item, size_bytes = self._items.popleft()
            self._bytes -= size_bytes
            self._changed.notify_all()
            return item


class _Allowance:
    """Token bucket."""

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at_s = burst, now_s

    def debt_s(self, amount: float, now_s: float) -> float:
        """Take `amount`; return how long to wait until it is paid for."""
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._rate) - amount
        self._at_s = now_s
        return max(0.0, -self._left / self._rate)


class Intake:
    """The messages of one worker. Called from the thread that hears it, which waits in place of the worker.

    Args:
        most_steps: Number of the run's last step; None if it is unknown.
    """

    def __init__(
        self,
        rank: int,
        node: str,
        most_steps: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rank, self.node = rank, node
        self._most_steps = most_steps
        self._clock, self._sleep = clock, sleep
        self._allowances = _Allowance(MESSAGES_S, BURST, clock()), _Allowance(BYTES_S, BURST_BYTES, clock())
        self._messages, self._bytes, self._held_s, self._told_s = 0, 0, 0.0, 0.0
        self._names: set[str] = set()

    def taken(self, message: Message, size_bytes: int, latest_s: float | None = None) -> Iterator[Message]:
        """Yield the message as it may be recorded; after a wait the event that tells of it, each time it has doubled.

        Args:
            latest_s: Present moment, emulated seconds since the first step; None before it.

        Raises:
            ValueError: No worker may send it, or it has sent too much in all; names the event and the field.
        """
        self._messages, self._bytes = self._messages + 1, self._bytes + size_bytes
        if self._bytes > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes of messages, the most that a worker may in one run")
        checked = checked_message(message, self.rank)
        self._check_bounds(checked, latest_s)
        now_s = self._clock()
        if wait_s := max(one.debt_s(cost, now_s) for one, cost in zip(self._allowances, (1, size_bytes), strict=True)):
            self._sleep(wait_s)
            self._held_s += wait_s
        yield checked
        if self._held_s > max(MIN_HELD_S, 2 * self._told_s):
            self._told_s = self._held_s
            yield HeldBack(
                rank=self.rank, node=self.node, messages=self._messages, size_bytes=self._bytes, held_s=self._held_s
            ).to_json()

    def _check_bounds(self, message: Message, latest_s: float | None) -> None:
        event, t_s, step = message["event"], message.get("t_s"), message.get("step")
        if t_s is not None and latest_s is not None and not -_EARLY_S <= t_s <= latest_s + _EARLY_S:
            raise ValueError(
                f"{event!r} with t_s={t_s!r:.80}: must be between 0, the first step, and {latest_s:.3f}, now"
            )
        if step is not None and self._most_steps is not None and step > self._most_steps:
            raise ValueError(f"{event!r} with step={step!r:.80}: must be at most {self._most_steps}, the last step")
        if event == "evaluation":
            self._names.add(message["name"])
            if len(self._names) > MAX_NAMES:
                raise ValueError(f"{event!r} of more than {MAX_NAMES} metrics")
