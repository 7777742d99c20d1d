"""Seconds that an accelerator works for a rank, by its events, in turns with the ranks that share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


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
    """Counter of one rank's seconds on its device.

    It runs while the rank has the device: from `resume` to `pause`, before which all that the rank has begun is over.
    So the seconds are those of its own work and of the host that hands it over, and of no other rank's.

    Args:
        event: Makes a new event.
        turn: Of the ranks on the device; None: it has no other.
    """

    def __init__(self, event: Callable[[], Event], turn: Turn | None = None) -> None:
        self._event, self._turn = event, turn
        self._since: Event | None = None
        """Last moment that is counted; None while the rank has not the device."""
        self._total_s = 0.0

    def seconds(self) -> float:
        """Return the seconds so far, once what was begun is over."""
        if self._since is not None:
            now = self._event()
            now.record()
            now.synchronize()
            self._total_s += self._since.elapsed_time(now) * 1e-3
            self._since = now
        return self._total_s

    def resume(self) -> None:
        """Have the device, once its other ranks let it go."""
        if self._since is None:
            if self._turn is not None:
                self._turn.take()
            self._since = self._event()
            self._since.record()

    def pause(self) -> None:
        """Let it go, once what was begun is over."""
        if self._since is not None:
            self.seconds()
            self._since = None
            if self._turn is not None:
                self._turn.give()
