"""What the commands write to: results on standard output, faults on standard error, one line each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment

from testbed.core.files import printable


class Terminal(Console):
    """Rich's console, which no text steers: neither by markup nor by characters that a terminal obeys.

    It falls silent when its reader goes away instead of ending the process.
    """

    def __init__(self, *, file: IO[str] | None = None, force_terminal: bool | None = None) -> None:
        super().__init__(file=file, force_terminal=force_terminal, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = "\n".join(map(printable, segment.text.split("\n")))
            yield segment if segment.control or text == segment.text else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _silence(self.file)


def tell(text: str) -> None:
    """A result, as it is: no markup, no wrapping."""
    Terminal().out(text, highlight=False)


def say(line: str) -> None:
    """A fault or a remark, on one line whatever it holds.

    Where standard error cannot be written to, the exit status is all that tells of it.
    """
    try:
        sys.stderr.write(f"longhaul: {printable(line)}\n")
    except OSError:
        _silence(sys.stderr)


def _silence(file: IO[str]) -> None:
    """Send what is still to be written nowhere; what is buffered would fail again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def show(picture: RenderableType, *, whole: bool = False) -> None:
    """Tables and the like. `whole` keeps rows on one line, however narrow the terminal; a file or pipe always does."""
    terminal = Terminal()
    if whole or not terminal.is_terminal:
        wide = terminal.options.update(max_width=_WIDEST)
        terminal.width = max(terminal.width, Measurement.get(terminal, wide, picture).maximum)
    terminal.print(picture)


_WIDEST = 240
