"""How far a sweep has come, and how long it still takes: a line for each run that begins or ends, and below them on a
terminal one line that is written again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.text import Text

from testbed.core.files import printable
from testbed.orchestrator.search.sweep.estimates import Estimate, kind_of
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, GIVEN_UP, RunStatus
from testbed.orchestrator.terminal.display import VERDICT_STYLES
from testbed.orchestrator.terminal.remaining import Remaining
from testbed.orchestrator.terminal.run_state import SEPARATOR
from testbed.orchestrator.terminal.spoken import spoken_left
from testbed.orchestrator.terminal.status_line import StatusLine, cut, stream_console


class Display:
    """A context manager; `on_error_stream` keeps standard output for what a script reads.

    Args:
        expected: How long runs take, by the hashes of their specs.
    """

    def __init__(
        self,
        name: str,
        standings: Sequence[RunStatus],
        expected: Mapping[str, Estimate] | None = None,
        *,
        on_error_stream: bool,
    ) -> None:
        self._name = name
        self._state = {one.asked.spec.hash: one.state for one in standings}
        to_make = [one.asked.spec for one in standings if one.state not in (DONE, GIVEN_UP)]
        seconds = {spec_hash: one.seconds for spec_hash, one in (expected or {}).items()}
        self._remaining = Remaining({spec.hash: kind_of(spec) for spec in to_make}, seconds)
        self._under_way: dict[str, tuple[str, float]] = {}
        """Label of each run that is being made, and when it began, by the hash of its spec."""
        self._line = StatusLine(self._drawn, stream_console(sys.stderr if on_error_stream else sys.stdout))

    def __enter__(self) -> Display:
        self._line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, traceback)

    def begin(self, asked: RunRequest, seconds: float | None) -> None:
        """A run begins.

        Args:
            seconds: Seconds that it was expected to take, if anything told.
        """
        self._remaining.begin(asked.spec.hash, time.monotonic())
        self._under_way[asked.spec.hash] = (asked.label, time.monotonic())
        takes_s = self._remaining.takes_s(asked.spec.hash)
        takes_s = seconds if takes_s is None else takes_s
        self._say(f"{asked.label}: begun{'' if takes_s is None else f', about {takes_s:.0f} s'}")

    def end(self, asked: RunRequest, found: RunStatus, lacking: str | None, *, again: bool) -> None:
        """A run has ended.

        Args:
            lacking: Why there is no record.
            again: True if it will be made once more.
        """
        now_s = time.monotonic()
        _, since_s = self._under_way.pop(asked.spec.hash, (asked.label, now_s))
        # one that came out invalid has lasted as long as the others
        is_whole = lacking is None and found.run is not None and found.run.is_completed
        self._remaining.end(asked.spec.hash, now_s, counts=is_whole, again=again)
        self._state[asked.spec.hash] = found.state if lacking is None or again else GIVEN_UP
        if found.done is not None:
            what, style = f"{found.done.verdict}, {found.done.run_id}", found.done.verdict
        else:
            what, style = f"{found.why or f'failed: {lacking}'}", "invalid"
        then = "; again later" if again else ""
        self._say(f"{asked.label}: {now_s - since_s:.0f} s, {what}{then}", VERDICT_STYLES.get(style, ""))

    def tell(self, asked: RunRequest, text: str) -> None:
        """Print a line about a run that is being made."""
        self._say(f"{asked.label}: {text}")

    def left(self, asked: RunRequest, seconds: float | None) -> None:
        """A run is left for the next call."""
        self._remaining.leave(asked.spec.hash)
        self._say(f"{asked.label}: left for the next call, since its {seconds or 0.0:.0f} s would end too late")

    def _say(self, line: str, style: str = "") -> None:
        self._line.say(f"{self._done}/{len(self._state)}  {line}", style)

    @property
    def _done(self) -> int:
        return sum(state == DONE for state in self._state.values())

    def _drawn(self, width: int, now_s: float) -> Text:
        seconds, unknown = self._remaining.left(now_s)
        apart = f"{unknown} run{'s' if unknown > 1 else ''} of unknown length" if unknown else ""
        given_up = sum(state == GIVEN_UP for state in self._state.values())
        words = [
            f"{self._name}: {self._done} of {len(self._state)} runs" + (f", {given_up} given up" if given_up else ""),
            " and ".join(filter(None, [spoken_left(seconds), apart])),
            ", ".join(f"{label} {now_s - since_s:.0f} s" for label, since_s in list(self._under_way.values())),
        ]
        return Text(cut(printable(SEPARATOR.join(filter(None, words))), width))
