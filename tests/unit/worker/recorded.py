"""Keeps what a part records, so that a test can look at it."""

from __future__ import annotations

from typing import Any

from testbed.core.record.events.base import StepEvent


class Recorded:
    """Function for `record`; keeps the events it is given."""

    def __init__(self) -> None:
        self._events: list[StepEvent] = []

    def __call__(self, event: StepEvent) -> None:
        self._events.append(event)

    def take(self) -> list[dict[str, Any]]:
        """Return the events since the last call, as JSON values."""
        events, self._events = self._events, []
        return [event.to_json() for event in events]


def taken(part: Any) -> list[dict[str, Any]]:
    """Return what `part`, which was given a `Recorded`, has recorded since the last call."""
    recorded = part._record
    assert isinstance(recorded, Recorded)
    return recorded.take()
