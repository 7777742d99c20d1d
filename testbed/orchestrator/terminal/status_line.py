"""One line that is written again and again on a terminal; elsewhere now and then a line more.

Lines that stay are printed above it. Drawing happens in a thread of its own, so that a terminal that is stopped or
gone never holds up who draws; at worst the drawing is lost.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from testbed.core.files import printable
from testbed.orchestrator.terminal.progress import SPARSE_S, Progress, SparseTimes
from testbed.orchestrator.terminal.terminal import Terminal

REFRESH_S = 0.25
LOG_WIDTH = 120
"""Characters of a line in a log."""
Draw = Callable[[int, float], Text]
"""The line, of at most so many characters, at a time in seconds; empty while there is nothing to say."""


class StatusLine:
    """Draws while its context lasts. No method blocks or raises for the sake of what is drawn.

    Args:
        draw: Called by the drawing thread.
        console: Where to; None prints nothing.
        end_limit_s: Seconds that the end waits for the last lines to be taken; None waits as long as that lasts.
    """

    def __init__(self, draw: Draw, console: Console | None, *, end_limit_s: float | None = None) -> None:
        self.began_s = time.monotonic()
        self._draw = draw
        self._console = console
        self._end_limit_s = end_limit_s
        self._lines: deque[Text] = deque()
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StatusLine:
        if self._console is not None:
            self._thread = threading.Thread(target=self._guarded, args=(self._console,), name="display", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(self._end_limit_s)

    @property
    def ended(self) -> bool:
        """True if nothing more will be drawn."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def is_rewritten(self) -> bool:
        """True on a terminal, where the line changes in place."""
        return self._console is not None and self._console.is_terminal and not self._console.is_dumb_terminal

    @property
    def width(self) -> int:
        """Number of characters that a line should have at most."""
        return min(LOG_WIDTH, self._console.width) if self._console is not None and self.is_rewritten else LOG_WIDTH

    def say(self, text: str, style: str = "") -> None:
        """Print a line that stays."""
        if self._console is not None:
            # a worker's words must not steer the terminal
            self._lines.append(Text(printable(text.replace("\n", " ")), style))
            self._wake.set()

    def _guarded(self, console: Console) -> None:
        try:
            self._rewrite(console) if self.is_rewritten else self._log(console)
        except (OSError, ValueError, SystemExit):  # the terminal is gone, or the stream is closed
            return
        except Exception as error:  # a fault of the drawing is no fault of the run
            with contextlib.suppress(OSError):
                os.write(2, f"longhaul: the display ended: {type(error).__name__}: {error}\n".encode())

    def _rewrite(self, console: Console) -> None:
        with Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as live:
            while not self._ending.wait(REFRESH_S):
                self._print_lines(console)
                # one column is left free: some terminals wrap when the last one is written
                live.update(
                    self._headed(self._draw(self.width - 1 - len(self._heading()), time.monotonic())), refresh=True
                )
            self._print_lines(console)

    def _log(self, console: Console) -> None:
        times = SparseTimes(self.began_s + SPARSE_S[0])
        while not self._ending.is_set():
            self._wake.wait(REFRESH_S)
            self._wake.clear()
            self._print_lines(console)
            now_s = time.monotonic()
            line = self._draw(LOG_WIDTH - len(self._heading()), now_s)
            if line and times.is_due(now_s):
                console.print(self._headed(line), soft_wrap=True)
        self._print_lines(console)

    def _print_lines(self, console: Console) -> None:
        while self._lines:
            console.print(self._headed(self._lines.popleft()), soft_wrap=True)

    def _headed(self, line: Text) -> Text:
        return Text.assemble((self._heading(), "dim"), line, no_wrap=True, overflow="ellipsis") if line else line

    def _heading(self) -> str:
        return f"{time.monotonic() - self.began_s:6.1f} s  "


class Following:
    """The progress of a command that makes no run itself: laws, plans, measurements.

    Args:
        what: Plural noun for the items.
        total: Number of them.
        stream: Where to, standard error as a rule: standard output is for results.
    """

    def __init__(self, what: str, total: int | None, stream: TextIO) -> None:
        self._progress = Progress(what, total)
        self._progress.at(0, time.monotonic())
        self._now = ""
        self._line = StatusLine(self._drawn, stream_console(stream))

    def __enter__(self) -> Following:
        self._line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, traceback)

    def at(self, done: int, total: int | None = None, now: str = "") -> None:
        """Take in how many are done.

        Args:
            total: Number of items, if that is known only now.
            now: Words for the item in hand.
        """
        if total is not None:
            self._progress.total = total
        self._progress.at(done, time.monotonic())
        self._now = now

    def tell(self, text: str) -> None:
        """Say what takes seconds: in the rewritten line on a terminal, as a line of its own in a log."""
        if self._line.is_rewritten:
            self._now = text
        else:
            self._line.say(f"{self._progress.words(time.monotonic())}: {text}")

    def _drawn(self, width: int, now_s: float) -> Text:
        if self._progress.total is None and not self._now:
            return Text()  # it has not begun
        words = ": ".join(filter(None, [self._progress.words(now_s), self._now]))
        return Text(cut(printable(words), width))


def stream_console(stream: TextIO) -> Console:
    """Return a console on `stream`.

    The stream says whether it is a terminal: by FORCE_COLOR in the environment a log would get pictures.
    """
    return Terminal(file=stream, force_terminal=stream.isatty())


def cut(text: str, width: int) -> str:
    """Return the text in at most `width` characters, its end left out if need be."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
