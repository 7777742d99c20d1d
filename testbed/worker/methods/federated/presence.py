"""Who of a run's clients is there when a round begins, and for how long still; the server waits until somebody is."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from testbed.core.errors import RunError
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.methods.federated.clients.availability import Availability

_MIN_S = 1e-6
"""What rounding may make less than nothing."""


class RunTime:
    """Emulated seconds since it was first asked; those in which a server was down do not count."""

    def __init__(self, clock: PhaseClock) -> None:
        self._clock = clock
        self._began_s: float | None = None

    def now_s(self) -> float:
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        return (now_s - self._began_s) / self._clock.dilation

    def wait(self, seconds: float) -> None:
        with self._clock.phase(WAITING):
            time.sleep(seconds * self._clock.dilation)

    def set(self, now_s: float) -> None:
        self._began_s = time.monotonic() - now_s * self._clock.dilation


class Presence:
    """
    Args:
        most_wait_s: emulated seconds that the server waits for somebody, before a round.
    """

    def __init__(self, availability: Availability, time_: RunTime, *, most_wait_s: float) -> None:
        self._availability, self._time, self._most_wait_s = availability, time_, most_wait_s
        self.waited_s = 0.0
        """Emulated, before the last round."""

    def leaving(self, candidates: Collection[int]) -> dict[int, float]:
        """Of those that are there, seconds until they go away, inf: never. Waits until one is.

        Raises:
            RunError: that would take longer than `most_wait_s`.
        """
        self.waited_s = 0.0
        while True:
            now_s = self._time.now_s()
            until_s = {one: self._availability.until_s(one, now_s) for one in sorted(candidates)}
            if found := {one: max(until - now_s, _MIN_S) for one, until in until_s.items() if until is not None}:
                return found
            next_s = min(self._availability.next_s(one, now_s) for one in candidates)
            wait_s = max(next_s - now_s, _MIN_S)
            if self.waited_s + wait_s > self._most_wait_s:
                told = f"in {wait_s:.4g} s" if wait_s < float("inf") else "never"
                raise RunError(
                    f"none of {len(candidates)} clients is available {now_s:.4g} s after the first round began, and the"
                    f" next one comes {told}; the server waits for strategy.round_timeout_s={self._most_wait_s:g} at"
                    " most: use a larger one, or other times in strategy.availability"
                )
            self._time.wait(wait_s)
            self.waited_s += wait_s

    def state_dict(self) -> dict[str, Any]:
        return {"now_s": self._time.now_s(), "waited_s": self.waited_s}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._time.set(state["now_s"])
        self.waited_s = state["waited_s"]
