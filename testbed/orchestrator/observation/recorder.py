"""Where every event of a run goes: the event file, the live totals, the judge, the display. One lock, one order."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.metric_samples import Totals
from testbed.orchestrator.observation.verdict.judge import Judge

Event = dict[str, Any]


class Recorder:
    """Appends events to `events.jsonl`, each a whole line as soon as it is there, and hands them on.

    A line that cannot be written (a full disk) is a failure of the run: it is kept in `failure` and training is
    stopped, since what is not recorded cannot be judged.
    """

    def __init__(self, path: Path, judge: Judge, totals: Totals, show: Callable[[Event], None]) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()
        self.judge = judge
        self.totals = totals
        self._show = show
        self.failure: RunError | None = None

    def write(self, event: Event) -> None:
        with self._lock:
            if self.failure is not None:
                return
            try:
                self._file.write(json.dumps(event, allow_nan=False) + "\n")
            except (OSError, ValueError) as error:
                self.failure = RunError(f"event {event['event']!r} could not be recorded: {error}")
                return
            self.judge.add(event)
            self.totals.add(event)
        self._show(event)

    def verdict(self) -> tuple[str, list[str]]:
        """As it stands now."""
        with self._lock:
            return self.judge.verdict()

    def close(self) -> None:
        with self._lock:
            try:
                self._file.close()
            except OSError as error:
                self.failure = self.failure or RunError(f"the last events could not be recorded: {error}")
