"""Who of a run's workers is there, is done, or is gone, and whom the others go on without."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from testbed.core.record.events.run import Left

Event = dict[str, Any]


class Membership:
    """Called from the run's thread and the schedule's.

    Args:
        nodes: by rank.
        patience_s: wall seconds after the end of rank 0 in which all that it goes on without are to be done too, and in
            which it is to end itself once they are all gone.
    """

    def __init__(self, nodes: Sequence[str], patience_s: float) -> None:
        self._nodes = nodes
        self._patience_s = patience_s
        self._patient_until_s: float | None = None
        self._alone_since_s: float | None = None
        self._lock = threading.Lock()
        self._done: set[str] = set()
        self._away: set[str] = set()
        self._late: set[str] = set()
        """Who has come back, and is not yet in the run again."""
        self._outlived: frozenset[str] = frozenset()
        self._losses: deque[tuple[str, Event]] = deque()
        self.told_losses: list[str] = []
        """Who was lost, and why, one line each."""

    def hear(self, node: str, message: Event) -> None:
        """What a worker says of itself; rank 0 says which ranks the others go on without. It is never one of them, but
        where they wait for it: see `FirstRank`."""
        event = message["event"]
        if event == "model" and node == self._nodes[0]:
            ranks = message.get("outlived", ())
            self._outlived = frozenset(self._nodes[rank] for rank in ranks if 0 < rank < len(self._nodes))
        elif event == "start":
            with self._lock:
                self._late.discard(node)
        elif event == "done":
            self.finish(node)

    def outlives(self, node: str) -> bool:
        return node in self._outlived

    @property
    def may_lose(self) -> bool:
        """Whether the run goes on without anyone."""
        return bool(self._outlived)

    def finish(self, node: str) -> None:
        with self._lock:
            self._done.add(node)
            if node == self._nodes[0]:
                self._patient_until_s = time.monotonic() + self._patience_s

    def leave(self, node: str) -> None:
        """It was taken away."""
        with self._lock:
            self._away.add(node)
            self._late.discard(node)

    def lose(self, node: str, why: str, *, says_so: bool = False) -> None:
        """It has gone by itself, or was killed. Told once, until it comes back; not of who is done.

        Args:
            says_so: it is out, and has told why. Having come back, it was too late to be in the run again.
        """
        with self._lock:
            if node in self._away or node in self._done:
                return
            late = says_so and node in self._late
            self._away.add(node)
            self._late.discard(node)
            rank = self._nodes.index(node)
            event = Left(rank=rank, node=node, message=why, late=late).to_json()
            self._losses.append((node, event))
            self.told_losses.append(f"worker {rank} on {node} had left: {why}")

    def take_loss(self) -> tuple[str, Event] | None:
        """An event for the record, and its node."""
        if self._patient_until_s is not None and time.monotonic() > self._patient_until_s:
            for node in self._outlived - self._done - self._away:
                self.lose(node, f"was not done {self._patience_s:g} s of wall time after {self._nodes[0]}")
        with self._lock:
            return self._losses.popleft() if self._losses else None

    def come_back(self, node: str) -> None:
        with self._lock:
            self._away.discard(node)
            self._late.add(node)

    def is_away(self, node: str) -> bool:
        """Return True if an event took it away, or the others went on without it."""
        return node in self._away

    def has_ended(self, node: str) -> bool:
        return node in self._done or node in self._away

    @property
    def forsaken(self) -> bool:
        """Whether rank 0 has been alone for longer than it may take to say so."""
        with self._lock:
            alone = self.may_lose and self._nodes[0] not in self._done and self._outlived <= self._away
            if not alone:
                self._alone_since_s = None
            elif self._alone_since_s is None:
                self._alone_since_s = time.monotonic()
            return self._alone_since_s is not None and time.monotonic() - self._alone_since_s > self._patience_s

    @property
    def all_done(self) -> bool:
        """And every loss is told. Who comes back is not waited for once rank 0, which would take it in, is done."""
        with self._lock:
            if self.may_lose and self._nodes[0] in self._away:  # it is to come back
                return False
            late = self._late if self._nodes[0] in self._done and self.may_lose else set()
            return not self._losses and len(self._done | self._away | late) == len(self._nodes)
