"""Signals that ask a command to end, noted from its first line to its last."""

from __future__ import annotations

import signal

from testbed.core.errors import Interrupted

_entered: list[Stop] = []
"""By this process, the outermost first."""


class Stop:
    """Signals from the first line to the last: before and during the run they end it, while sealing they are noted.

    One inside another takes nothing away from it: both hear of every signal, the inner one also of those before it.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.signals: list[signal.Signals] = []

    @property
    def asked(self) -> signal.Signals | None:
        """The first of them."""
        return self.signals[0] if self.signals else None

    def heed(self) -> None:
        """
        Raises:
            Interrupted: somebody asked for the end.
        """
        if self.asked is not None:
            raise Interrupted(f"stopped by {self.asked.name}")

    def __enter__(self) -> Stop:
        _entered.append(self)  # before it looks, so that no signal falls between
        self.signals = list(_entered[0].signals)
        self._before = {number: signal.signal(number, _ask) for number in self.NUMBERS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        _entered.remove(self)


def _ask(number: int, _frame: object) -> None:
    for stop in _entered:
        stop.signals.append(signal.Signals(number))
