"""Rank 0 as one that may be started again: whether it is waited for, and what it tells for the second time then."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from testbed.core.spec.schedule import Change

_NO_RETURN = "; nothing goes on without it, but with strategy.checkpoint=true after a crash event and a join event"

_NAMED_BY = {
    "model": (),
    "step": ("step",),
    "evaluation": ("step", "name"),
    "round": ("round",),
    "last_model": ("round",),
    "gate": ("round", "direction"),
}
"""Which of its events are the same one, of those that it may tell again."""


class FirstRank:
    """Called from the run's thread and the schedule's.

    Args:
        changes: of the run's schedule.
        node: of rank 0.
    """

    def __init__(self, changes: Iterable[Change], node: str) -> None:
        self._node = node
        self._joins = sum(change.kind == "join" and change.node == node for change in changes)
        """That are still to come."""
        self._lock = threading.Lock()
        self._is_awaited = False
        self._told: set[tuple[Any, ...]] = set()
        self._resumes = False
        """Whether it goes on where it was, as its strategy says."""
        self._serves = False

    def crash(self, node: str) -> None:
        """An event is about to take `node` away."""
        with self._lock:
            self._is_awaited |= node == self._node and self._resumes and self._joins > 0

    def join(self, node: str) -> None:
        """An event has started `node` again."""
        with self._lock:
            self._joins -= node == self._node
            self._is_awaited &= node != self._node

    def is_awaited(self, node: str) -> bool:
        """Whether `node` is this one, is away, and the others wait until it is back."""
        return node == self._node and self._is_awaited

    def hint(self, node: str) -> str:
        """What to say of the end of `node` besides, where the others would have gone on without any other."""
        return _NO_RETURN if node == self._node and self._serves else ""

    def is_news(self, node: str, message: dict[str, Any]) -> bool:
        """Whether what `node` says is no repetition: of a round that is done again, what was told first stands."""
        if node != self._node:
            return True
        if message["event"] == "model":
            outlived = message.get("outlived", ())
            self._resumes, self._serves = 0 in outlived, bool(outlived)
        if not self._resumes:
            return True
        fields = _NAMED_BY.get(message["event"])
        if fields is None:
            return True
        told = message["event"], *(message[field] for field in fields)
        is_news = told not in self._told
        self._told.add(told)
        return is_news
