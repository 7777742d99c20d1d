"""Seconds that a rank's host and its accelerator work, one after the other, in turns with the ranks that share it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from testbed.worker.device.clock import cpu_s


class Event(Protocol):
    """A mark in the device's order of work, as `torch.cuda.Event`."""

    def record(self) -> None:
        """Put it behind all that was begun."""

    def synchronize(self) -> None:
        """Wait until the device has come to it."""

    def elapsed_time(self, later: Event, /) -> float:
        """Return the milliseconds to a later one."""


class Turn(Protocol):
    """Right to a device, which one of the ranks that share it has at a time."""

    def take(self) -> None:
        """Wait for it."""

    def give(self) -> None:
        """Let another rank have it."""


class DeviceMeter:
    """Counter of one rank's seconds: CPU seconds of its thread, and what its device has still to do after that.

    It runs while the rank has the device: from `resume` to `pause`, before which all that the rank has begun is over.
    So the seconds are of its own work and of no other rank's. The time between two events alone would have the device
    idle while the thread waits for a core, and count that: a machine with too few cores would look like a slow device.
    What the device does while the thread waits is not counted either, so a phase may be called late by that much too
    much, and never too little.

    Args:
        event: Makes a new event.
        turn: Of the ranks on the device; None: it has no other.
    """

    def __init__(self, event: Callable[[], Event], turn: Turn | None = None) -> None:
        self._event, self._turn = event, turn
        self._since: Event | None = None
        """Last moment that is counted; None while the rank has not the device."""
        self._since_s = self._cpu_since_s = self._total_s = 0.0
        """When the device came to that, by the wall (CLOCK_MONOTONIC), and the thread's CPU seconds then."""

    def seconds(self) -> float:
        """Return the seconds so far, once what was begun is over."""
        if self._since is not None:
            now = self._event()
            now.record()
            handed_over_s, cpu_now_s = time.monotonic(), cpu_s()
            now.synchronize()
            self._since_s += self._since.elapsed_time(now) * 1e-3
            self._total_s += cpu_now_s - self._cpu_since_s + max(0.0, self._since_s - handed_over_s)
            self._since, self._cpu_since_s = now, cpu_s()
        return self._total_s

    def resume(self) -> None:
        """Have the device, once its other ranks let it go."""
        if self._since is None:
            if self._turn is not None:
                self._turn.take()
            self._since, self._cpu_since_s = self._event(), cpu_s()
            self._since_s = time.monotonic()  # the device is idle, so it comes at once to what is recorded
            self._since.record()

    def pause(self) -> None:
        """Let it go, once what was begun is over."""
        if self._since is not None:
            self.seconds()
            self._since = None
            if self._turn is not None:
                self._turn.give()
