"""The live display of a run: lines that stay, and below them one line that is written again and again on a terminal.

In a log that line comes at growing distances.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from testbed.core.files import printable
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.terminal.grade_changes import GradeChanges
from testbed.orchestrator.terminal.progress import Progress, SparseTimes
from testbed.orchestrator.terminal.run_state import RunState
from testbed.orchestrator.terminal.spoken import spoken_change
from testbed.orchestrator.terminal.status_line import StatusLine, cut, stream_console

END_LIMIT_S = 1.0
"""Seconds that the end of a run waits for a terminal that does not take its output."""
VERDICT_STYLES = {"valid": "green", "suspect": "yellow", "invalid": "bold red"}
_HEADING = 10
"""Characters before each line: the seconds since the beginning."""


class Display:
    """Shows a run while it goes; a context manager. No method blocks or raises for the sake of what is shown.

    Args:
        steps: Number of steps of the run, if it is known.
        expected_s: Seconds on the wall that all steps are expected to take.
        cycle: Number of steps from one exchange to the next.
    """

    def __init__(
        self,
        spec: RunSpec,
        quiet: bool = False,
        console: Console | None = None,
        *,
        steps: int | None = None,
        expected_s: float | None = None,
        cycle: int = 1,
    ) -> None:
        self._own_stream = None if quiet or console is not None else _standard_output()
        if self._own_stream is not None:
            console = stream_console(self._own_stream)
        self._line = StatusLine(self._drawn, None if quiet else console, end_limit_s=END_LIMIT_S)
        self._state = RunState(spec, self._line.began_s, steps or spec.steps, expected_s, cycle)
        self._grades = GradeChanges()
        self._change_times: dict[tuple[Any, ...], SparseTimes] = {}
        self._unsaid_changes = 0

    def __enter__(self) -> Display:
        self._line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state.step is not None and not self._line.is_rewritten:
            # sparse lines may have missed a short run, and the end of a long one
            self._line.say(self._state.line(self._line.width - _HEADING, time.monotonic()))
        self._line.__exit__(kind, error, traceback)
        if self._own_stream is not None and self.ended:
            with contextlib.suppress(OSError):
                self._own_stream.close()

    @property
    def ended(self) -> bool:
        """True if nothing more will be drawn."""
        return self._line.ended

    def stage(self, text: str) -> None:
        """A stage of the run was reached, or something worth a line happened."""
        self._state.stage, self._state.part = text, None
        self._line.say(text)

    def progress(self, what: str, done: float, total: float | None = None) -> None:
        """Draw what a phase of the run does, until the next stage, with the time that it still takes.

        Args:
            what: Plural noun for its items, such as "pilot steps".
            done: Number of items done; the first call for `what` is its beginning.
            total: Number of items, if it is known.
        """
        part = self._state.part
        if part is None or part.what != what:
            part = Progress(what, total)
        part.total = total
        part.at(done, time.monotonic())
        self._state.part = None if total is not None and done >= total else part

    def line(self, text: str) -> None:
        """Print a line that changes no stage, such as one of a script's output."""
        self._line.say(text)

    def event(self, event: dict[str, Any]) -> None:
        """Take in one row of `core.record.events`."""
        try:
            self._state.add(event, time.monotonic())
            if event.get("event") in ("fault", "left"):
                self._line.say(": ".join([str(event["event"]), *_whose(event), str(event.get("message"))]))
            elif event.get("event") == "change":
                self._change(event, time.monotonic())
        except (TypeError, ValueError, AttributeError, OverflowError):
            return  # a row of another form is the recorder's to complain about

    def verdict(self, verdict: str | None, reasons: Iterable[str] = ()) -> None:
        """Take in the provisional verdict. A line says that its grade has changed; all reasons are in the table."""
        before = self._grades.said
        if self._grades.change(verdict, time.monotonic()):
            found = [str(reason) for reason in reasons]
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            said = f"verdict: {before} -> {self._grades.said}"
            # the reasons are of this second's grade, which may be another one than what has lasted
            if found and verdict == self._grades.said:
                said += f": {cut(found[0], self._line.width - _HEADING - len(said) - len(more) - 2)}{more}"
            self._line.say(said, VERDICT_STYLES[self._grades.said])
        if verdict is not None:
            self._state.grade = self._grades.said

    def _change(self, event: dict[str, Any], now_s: float) -> None:
        """Print a change, of one kind and place at growing distances: a trace has ten a second."""
        key = tuple(str(event.get(name)) for name in ("what", "name", "from", "node"))
        line = spoken_change(event)
        if not self._change_times.setdefault(key, SparseTimes(now_s)).is_due(now_s):
            self._unsaid_changes += 1
            return
        unsaid, self._unsaid_changes = self._unsaid_changes, 0
        self._line.say(line + (f" (after {unsaid} more changes)" if unsaid else ""))

    def _drawn(self, width: int, now_s: float) -> Text:
        if self._state.step is None and self._state.part is None and not self._line.is_rewritten:
            return Text()  # a log has the stages themselves
        text = Text(printable(self._state.line(width, now_s)))
        for grade, style in VERDICT_STYLES.items():
            text.highlight_regex(rf"(?<= ){re.escape(grade)}(?= |$)", style)
        return text


def _whose(event: dict[str, Any]) -> list[str]:
    """Return the rank and the node of an event, those that it has."""
    rank, node = event.get("rank"), event.get("node")
    words = [*([] if rank is None else [f"rank {rank}"]), *([] if node is None else [f"on {node}"])]
    return [" ".join(words)] if words else []


def _standard_output() -> TextIO | None:
    """Return a stream of our own on standard output: a thread stuck in `sys.stdout` would abort the interpreter at its
    end."""
    try:
        return os.fdopen(os.dup(1), "w", errors="replace")
    except OSError:
        return None
