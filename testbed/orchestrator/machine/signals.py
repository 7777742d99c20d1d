"""Signals that ask a command to end: noted until it heeds them, or raised at once where that cuts nothing short."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from testbed.core.errors import Interrupted

SAYS_WHERE = signal.SIGUSR2
"""A run that gets it writes to its log where each of its threads is, and goes on."""
_watching: list[Stop] = []
"""In this process, the outermost first."""


class Stop:
    """Hears of signals from the first line of a `with` block to its last; after `watch`, until the process ends.

    They are noted until `heed`. With `at_once` the first one raises wherever the process is, except inside `noted`,
    and the process ignores all others from then on, so that they do not cut short the end that it began.

    One inside another takes nothing away from it: both hear of every signal, the inner one also of those before it.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, *, at_once: bool = False) -> None:
        self.signals: list[signal.Signals] = []
        self.at_once = at_once
        self.raises = at_once

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

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside, a signal raises nothing until `heed` or the end; if something else is raised, that goes first."""
        self.raises = False
        try:
            yield
        finally:
            self.raises = self.at_once
        self.heed()

    def watch(self) -> None:
        """Hear of signals from now on."""
        _watching.append(self)  # before it looks, so that no signal falls between
        self.signals = list(_watching[0].signals)
        self._before = {number: signal.signal(number, _ask) for number in self.NUMBERS}

    def __enter__(self) -> Stop:
        self.watch()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        _watching.remove(self)


def _ask(number: int, _frame: object) -> None:
    if any(stop.at_once for stop in _watching):
        for other in Stop.NUMBERS:
            signal.signal(other, signal.SIG_IGN)
    for stop in _watching:
        stop.signals.append(signal.Signals(number))
    for stop in _watching:
        if stop.raises:
            stop.heed()
