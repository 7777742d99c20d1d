"""How far a sweep has come: one picture on a terminal, a line for each run that begins or ends elsewhere.

On a terminal the same lines stay above the picture.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from testbed.core.files import printable
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, GIVEN_UP, RunStatus
from testbed.orchestrator.terminal.display import VERDICT_STYLES
from testbed.orchestrator.terminal.terminal import Terminal

_REFRESHES_S = 2.0
_MAX_LINES = 8
"""Of runs that are being made, where many are."""


class Display:
    """A context manager; `on_error_stream` keeps standard output for what a script reads."""

    def __init__(self, name: str, standings: Sequence[RunStatus], *, on_error_stream: bool) -> None:
        stream = sys.stderr if on_error_stream else sys.stdout
        # asked of the stream: FORCE_COLOR in the environment would put a picture in a log
        self._console = Terminal(file=stream, force_terminal=stream.isatty())
        self._name = name
        self._state = {one.asked.spec.hash: one.state for one in standings}
        self._began_s = time.monotonic()
        self._under_way: dict[str, tuple[RunRequest, float | None, float]] = {}
        """By the hash of a spec: the run, its estimate, and when it began."""
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._picture,
                refresh_per_second=_REFRESHES_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, traceback)

    def begin(self, asked: RunRequest, seconds: float | None) -> None:
        self._under_way[asked.spec.hash] = (asked, seconds, time.monotonic())
        about = "of unknown length" if seconds is None else f"about {seconds:.0f} s"
        self._say(f"{asked.label}: begun, {about}")

    def end(self, asked: RunRequest, found: RunStatus, lacking: str | None, *, again: bool) -> None:
        """
        Args:
            lacking: why there is no record.
            again: whether it will be made once more.
        """
        _, _, since_s = self._under_way.pop(asked.spec.hash, (asked, None, time.monotonic()))
        took_s = time.monotonic() - since_s
        self._state[asked.spec.hash] = found.state if lacking is None or again else GIVEN_UP
        if found.done is not None:
            what, style = f"{found.done.verdict}, {found.done.run_id}", found.done.verdict
        else:
            what, style = f"{found.why or f'failed: {lacking}'}", "invalid"
        then = "; once more later" if again else ""
        self._say(f"{asked.label}: {took_s:.0f} s, {what}{then}", VERDICT_STYLES.get(style, ""))

    def tell(self, asked: RunRequest, text: str) -> None:
        """Of a run that is being made."""
        self._say(f"{asked.label}: {text}")

    def left(self, asked: RunRequest, seconds: float | None) -> None:
        self._say(f"{asked.label}: left for the next call, since its {seconds or 0.0:.0f} s would end too late")

    def _say(self, line: str, style: str = "") -> None:
        elapsed_s = time.monotonic() - self._began_s
        heading = f"{elapsed_s:7.1f} s  {self._done}/{len(self._state)}  "
        text = Text.assemble((heading, "dim"), (printable(line), style))
        self._console.print(text, soft_wrap=True)

    @property
    def _done(self) -> int:
        return sum(state == DONE for state in self._state.values())

    def _picture(self) -> RenderableType:
        given_up = sum(state == GIVEN_UP for state in self._state.values())
        words = f"{self._done} of {len(self._state)} runs" + (f", {given_up} given up" if given_up else "")
        grid = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=len(self._state), completed=self._done, width=40)
        grid.add_row(Text(f"sweep {printable(self._name)}", "bold"), bar, words)
        lines = [Text(_spoken(*one), "dim") for one in list(self._under_way.values())[:_MAX_LINES]]
        if more := len(self._under_way) - len(lines):
            lines.append(Text(f"and {more} more", "dim"))
        return Group(grid, *lines)


def _spoken(asked: RunRequest, seconds: float | None, since_s: float) -> str:
    of = "" if seconds is None else f" of about {seconds:.0f} s"
    return f"now {printable(asked.label)}: {time.monotonic() - since_s:.0f} s{of}"
