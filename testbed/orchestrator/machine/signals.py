"""Signals that ask a command to end, noted from its first line to its last."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

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


# How signals end a run: in order, and where nothing is left half done.

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunStop:
    """What a signal asks for: an orderly end, begun once, at once or where it is safe."""

    def __init__(self) -> None:
        self._asked: str | None = None
        self._is_noted = False

    def watch(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._ask)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside, a signal raises nothing until `heed` or the end; if something else is raised, that goes first."""
        self._is_noted = True
        try:
            yield
        finally:
            self._is_noted = False
        self.heed()

    def heed(self) -> None:
        """
        Raises:
            Interrupted: it was asked for.
        """
        if self._asked is not None:
            raise Interrupted(self._asked)

    def _ask(self, number: int, _frame: object) -> None:
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        self._asked = f"stopped by {signal.Signals(number).name}"
        if not self._is_noted:
            raise Interrupted(self._asked)
