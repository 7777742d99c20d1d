"""The recorder: it hands every event of a run to event file, live totals, judge and display in one order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.events.network import WALL_CLOCK
from testbed.core.record.metric_samples import Totals
from testbed.orchestrator.emulation.kernel.dilation import emulated
from testbed.orchestrator.observation.verdict.judge import Judge

Event = dict[str, Any]


class Recorder:
    """Appends events to `events.jsonl`, each a whole line as soon as it is there, and hands them on.

    A line that cannot be written (a full disk) is a failure of the run: it is kept in `failure` and training is
    stopped, since what is not recorded cannot be judged.

    Events without a time happen now. Before step 1 they are held, since its moment is not known yet.

    Args:
        dilation: Dilation of the run; network measurements are converted to emulated time by it.
    """

    def __init__(
        self, path: Path, judge: Judge, totals: Totals, show: Callable[[Event], None], dilation: float = 1.0
    ) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()
        self.judge = judge
        self.totals = totals
        self._show = show
        self.dilation = dilation
        self._t0_s: float | None = None
        self._held: list[tuple[float, Event]] = []
        self._held_lock = threading.Lock()
        self.failure: RunError | None = None

    @property
    def has_begun(self) -> bool:
        """True once the moment of step 1 is known."""
        return self._t0_s is not None

    def begin(self, t0_s: float) -> None:
        """Record what was held; step 1 begins at `t0_s` (CLOCK_MONOTONIC)."""
        with self._held_lock:
            self._t0_s = t0_s
            for at_s, event in self._held:
                self._append({"t_s": (at_s - t0_s) / self.dilation, **event})
            self._held.clear()

    def write(self, event: Event) -> None:
        """Record an event, which happens now unless it has its own time, as a worker's have."""
        now_s = time.monotonic()
        if event["event"] in WALL_CLOCK:
            event = emulated(event, self.dilation)
        if "t_s" in event:
            self._append(event)
            return
        with self._held_lock:
            if self._t0_s is None:
                self._held.append((now_s, event))
            else:
                self._append({"t_s": (now_s - self._t0_s) / self.dilation, **event})

    def _append(self, event: Event) -> None:
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
        """Return the present verdict and its reasons."""
        with self._lock:
            return self.judge.verdict()

    def close(self) -> None:
        """End the record: what it lacks now is a reason of the verdict."""
        with self._lock:
            self.judge.close(self.dilation)
            try:
                self._file.close()
            except OSError as error:
                self.failure = self.failure or RunError(f"the last events could not be recorded: {error}")
