"""On what terms a round's clients take part: how long each may train before nothing of it counts any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.worker.methods.federated.presence import Presence

Takes = Callable[[int, int, int], float]
"""Emulated seconds of a client, in a round, on a worker."""


class RoundDeadline:
    """A client goes by its own seconds from the round's beginning, as if its worker ran it alone, whatever ran there
    before it: clients are side by side, though they are run in sequence.

    Args:
        presence: who is there; None: everybody, always.
        deadline_s: a client that would take longer is cut then; None: nobody is.
        takes: what clients will take; None: it is not known, and all that are done count.
        first: where it is known, so many that will be done first count; others are cut once the last of these is done.
    """

    def __init__(
        self,
        presence: Presence | None = None,
        *,
        deadline_s: float | None = None,
        first: int = 1,
        takes: Takes | None = None,
    ) -> None:
        self._presence, self._first, self._takes = presence, first, takes
        self._deadline_s = math.inf if deadline_s is None else deadline_s
        self._leaving_s: dict[int, float] = {}
        self.limits_s: dict[int, float] = {}
        """Of each of the round's clients; inf: none."""

    def present(self, candidates: Sequence[int]) -> list[int]:
        """Of these, ascending, one or more: the server waits for one.

        Raises:
            RunError: it would wait too long.
        """
        everyone = dict.fromkeys(candidates, math.inf)
        self._leaving_s = everyone if self._presence is None else self._presence.leaving(candidates)
        return sorted(self._leaving_s)

    @property
    def waited_s(self) -> float:
        return 0.0 if self._presence is None else self._presence.waited_s

    def begin(self, round_: int, owners: Mapping[int, int]) -> None:
        """A round of clients that are present does, with the worker of each."""
        self.limits_s = {one: min(self._leaving_s[one], self._deadline_s) for one in owners}
        if self._takes is None:
            return
        takes_s = {one: self._takes(one, round_, worker) for one, worker in owners.items()}
        done = sorted((taken_s, one) for one, taken_s in takes_s.items() if taken_s <= self.limits_s[one])
        if len(done) <= self._first:
            return
        last_s = done[self._first - 1][0]
        for one in owners.keys() - {one for _, one in done[: self._first]}:
            # of equals those of the lowest numbers count: the others are just not done
            self.limits_s[one] = min(self.limits_s[one], math.nextafter(last_s, 0.0))

    def left(self, client: int) -> bool:
        """Whether one that was cut had gone away; else it was late."""
        return self._leaving_s[client] <= self.limits_s[client]

    def state_dict(self) -> dict[str, Any]:
        presence = None if self._presence is None else self._presence.state_dict()
        return {"presence": presence, "leaving_s": dict(self._leaving_s), "limits_s": dict(self.limits_s)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._leaving_s, self.limits_s = dict(state["leaving_s"]), dict(state["limits_s"])
        if self._presence is not None:
            self._presence.load_state_dict(state["presence"])
