"""How signals end a run: in order, and where nothing is left half done."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from testbed.core.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
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
