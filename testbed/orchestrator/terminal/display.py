"""The live display of a run: a panel on a terminal, plain lines elsewhere.

Drawing happens in a thread of its own, so that a terminal that is stopped or gone can never hold up the process that
owns the network; at worst the drawing is lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from testbed.core.files import printable
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.terminal.progress import (
    MISSING,
    Progress,
    spoken,
    spoken_change,
    spoken_rate,
    spoken_size,
    spoken_time,
)
from testbed.orchestrator.terminal.terminal import Terminal

REFRESH_S = 0.25
PLAIN_INTERVAL_S = 5.0
CHANGE_INTERVAL_S = 5.0
"""Between two lines on changes of one kind to one link or node: a trace has ten changes a second."""
END_LIMIT_S = 1.0
"""How long the end of a run waits for a terminal that does not take its output."""
_FIGURE = re.compile(r"(?<![\w-])\d+(?:\.\d+)?")
"""Not those of names: what is said of `local-0` is not what is said of `local-1`."""
VERDICT_STYLES = {"valid": "green", "suspect": "yellow", "invalid": "bold red"}


class Display:
    """Shows a run while it goes; a context manager. No method blocks or raises for the sake of what is shown."""

    def __init__(self, spec: RunSpec, quiet: bool = False, console: Console | None = None) -> None:
        self._progress = Progress(spec)
        self._quiet = quiet
        self._own_stream = None if quiet or console is not None else _standard_output()
        self._console = console if console is not None else _console(self._own_stream)
        self._lines: deque[str] = deque()
        self._said_changes: dict[tuple[Any, ...], float] = {}
        self._unsaid_changes = 0
        self._said_verdict: tuple[str | None, ...] = ()
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Display:
        if not self._quiet:
            self._thread = threading.Thread(target=self._draw_until_end, name="display", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(END_LIMIT_S)
        if self._own_stream is not None and self.ended:
            with contextlib.suppress(OSError):
                self._own_stream.close()

    @property
    def ended(self) -> bool:
        """Whether nothing more will be drawn."""
        return self._thread is None or not self._thread.is_alive()

    def stage(self, text: str) -> None:
        """A stage of the run was reached, or something worth a line happened."""
        self._progress.stage = text
        self._say(text)

    def line(self, text: str) -> None:
        """Print a line that changes no stage, such as one of a script's output."""
        self._say(text)

    def event(self, event: dict[str, Any]) -> None:
        """Take in one row of `core.record.events`."""
        try:
            self._progress.add(event)
            if event.get("event") in ("fault", "left"):
                self._say(": ".join([str(event["event"]), *_whose(event), str(event.get("message"))]))
            elif event.get("event") == "change":
                self._change(event)
        except (TypeError, ValueError, AttributeError, OverflowError):
            return  # a row of another form is the recorder's to complain about

    def verdict(self, verdict: str | None, reasons: Iterable[str] = ()) -> None:
        """The verdict so far; a line where it, or what it is about, is another: figures alone change every second."""
        reasons = tuple(str(reason) for reason in reasons)
        said = (verdict, *(_FIGURE.sub("", reason) for reason in reasons))
        if said != self._said_verdict and verdict not in (None, "valid"):
            self._say(f"verdict so far: {verdict}: {'; '.join(reasons)}")
        self._said_verdict = said
        self._progress.verdict, self._progress.reasons = verdict, reasons

    def _change(self, event: dict[str, Any]) -> None:
        key = tuple(str(event.get(name)) for name in ("what", "name", "from", "node"))
        now_s = time.monotonic()
        if now_s - self._said_changes.get(key, -CHANGE_INTERVAL_S) < CHANGE_INTERVAL_S:
            self._unsaid_changes += 1
            return
        line = spoken_change(event)
        self._said_changes[key] = now_s
        unsaid, self._unsaid_changes = self._unsaid_changes, 0
        self._say(line + (f" (after {unsaid} more changes)" if unsaid else ""))

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._lines.append(printable(text.replace("\n", " ")))  # a worker's words must not steer the terminal
            self._wake.set()

    def _draw_until_end(self) -> None:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._guard(self._draw_panel)
        else:
            self._guard(self._draw_lines)

    def _guard(self, draw: Callable[[], None]) -> None:
        try:
            draw()
        except (OSError, ValueError, SystemExit):  # the terminal is gone, or the stream is closed
            return
        except Exception as error:  # a fault of the drawing is no fault of the run
            self._last_word(error)

    def _last_word(self, error: Exception) -> None:
        with contextlib.suppress(OSError):
            os.write(2, f"longhaul: the display ended: {type(error).__name__}: {error}\n".encode())

    def _draw_panel(self) -> None:
        with Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False) as live:
            while not self._ending.wait(REFRESH_S):
                self._print_lines()
                live.update(panel(self._progress), refresh=True)
            self._print_lines()

    def _draw_lines(self) -> None:
        shown_s = time.monotonic()
        while not self._ending.is_set():
            self._wake.wait(REFRESH_S)
            self._wake.clear()
            self._print_lines()
            if time.monotonic() - shown_s >= PLAIN_INTERVAL_S and self._progress.step is not None:
                shown_s = time.monotonic()
                self._print(self._progress.line())
        self._print_lines()

    def _print_lines(self) -> None:
        while self._lines:
            self._print(self._lines.popleft())

    def _print(self, line: str) -> None:
        elapsed_s = time.monotonic() - self._progress.started_s
        text = Text.assemble((f"{elapsed_s:6.1f} s  ", "dim"), line)
        self._console.print(text, soft_wrap=True)


def _whose(event: dict[str, Any]) -> list[str]:
    """Return the rank and the node of an event, those that it has."""
    rank, node = event.get("rank"), event.get("node")
    words = [*([] if rank is None else [f"rank {rank}"]), *([] if node is None else [f"on {node}"])]
    return [" ".join(words)] if words else []


def _console(stream: TextIO | None) -> Console:
    """Whether there is a terminal is asked of the stream: FORCE_COLOR in the environment would put a panel in a log."""
    return Terminal(file=stream, force_terminal=None if stream is None else stream.isatty())


def _standard_output() -> TextIO | None:
    """A stream of our own on standard output: a thread stuck in `sys.stdout` would abort the interpreter at its end."""
    try:
        return os.fdopen(os.dup(1), "w", errors="replace")
    except OSError:
        return None


def panel(progress: Progress) -> RenderableType:
    """One picture of where the run stands."""
    parts: list[RenderableType] = [_heading(progress)]
    if progress.step is not None:
        parts.append(_training(progress))
    if progress.links:
        parts.append(_links(progress))
    parts.append(_verdict(progress))
    return Group(*parts)


def _heading(progress: Progress) -> Text:
    spec = progress.spec
    what = f"{spec.topo}  {spec.workload.name}  {spec.strategy.name}  {spec.compressor.name}  {spec.workers} workers"
    elapsed_s = time.monotonic() - progress.started_s
    return Text.assemble((what, "bold"), f"   {elapsed_s:.0f} s   ", (progress.stage, "dim"))


def _training(progress: Progress) -> Table:
    grid = Table.grid(padding=(0, 2))
    total = progress.spec.steps
    step = progress.step or 0
    if total:
        grid.add_row("step", f"{step}/{total}", ProgressBar(total=total, completed=step, width=30))
    else:
        grid.add_row("step", str(step))
    grid.add_row("loss", spoken(progress.loss))
    grid.add_row(progress.metric_name or "metric", spoken(progress.metric))
    grid.add_row("step time", spoken_time(progress.step_s))
    if progress.links:
        grid.add_row("WAN", spoken_size(progress.wan_bytes), f"now {spoken_rate(progress.wan_rate_bit_s)}")
    grid.add_row("CPU idle", spoken(progress.cpu_idle_ratio, "{:.0%}"))
    return grid


def _links(progress: Progress) -> Table:
    grid = Table.grid(padding=(0, 2))
    for link in progress.links.values():
        use = link.use_ratio
        grid.add_row(
            f"{link.source} -> {link.target}",
            ProgressBar(total=1.0, completed=min(use or 0.0, 1.0), width=20),
            f"{spoken(use, '{:.0%}')} of {spoken_rate(link.asked_rate_bit_s)}",
            f"RTT {spoken_time(progress.rtt_s.get(link.name))}",
        )
    return grid


def _verdict(progress: Progress) -> Text:
    text = Text("verdict so far: ")
    text.append(progress.verdict or MISSING, VERDICT_STYLES.get(progress.verdict or "", ""))
    for reason in progress.reasons:
        text.append(f"\n  {printable(reason)}")
    return text
