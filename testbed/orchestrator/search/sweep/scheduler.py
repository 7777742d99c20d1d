"""The course of a sweep: what lacks is made, what failed is made once more, what would end too late is left."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.core.errors import LonghaulError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.executors.executor import Executor
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep.display import Display
from testbed.orchestrator.search.sweep.estimates import Estimate
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, GIVEN_UP, MAX_ATTEMPTS, RunStatus, standing


@dataclass
class SweepScheduler:
    """One call's. The folder of runs is asked after each run; nothing else says whether it counts."""

    kept: KeptRuns
    estimates: Mapping[str, Estimate]
    display: Display
    most_s: float | None = None
    """No run is begun that would end later than this after the call's beginning, by its estimate."""
    began_s: float = field(default_factory=time.monotonic)
    """The call; measuring for the estimates has taken of its time."""
    forgotten: frozenset[str] = frozenset()
    """Runs that are no attempts any more."""
    left: list[RunRequest] = field(default_factory=list)
    """What there was no time for."""
    error: LonghaulError | None = None
    """Why it ended before its end."""
    unrecorded: dict[str, list[str]] = field(default_factory=dict)
    """By the hash of a spec, why an attempt left no record."""
    _tries: Counter[str] = field(default_factory=Counter)
    """Likewise, attempts of this call."""

    def follow(self, standings: Sequence[RunStatus], executor: Executor) -> None:
        """Until all is done, given up or left, or `error` says why not; never raises that."""
        waiting = _Waiting(
            [one.asked for one in standings if one.state not in (DONE, GIVEN_UP)], self._begin, self.display
        )
        with Stop() as waiting.stop:
            try:
                for spec, lacking in executor.perform(waiting):
                    asked = waiting.by_hash[spec.hash]
                    if self._take(asked, lacking):
                        waiting.asked.append(asked)
            except LonghaulError as error:
                self.error = error

    def now(self, asked: RunRequest) -> RunStatus:
        return standing(asked, self.kept, self.forgotten)

    def _begin(self, asked: RunRequest) -> bool:
        """Whether there is time for it."""
        seconds = self.estimates[asked.spec.hash].seconds
        if self.most_s is not None and time.monotonic() - self.began_s + (seconds or 0.0) > self.most_s:
            self.left.append(asked)
            self.display.left(asked, seconds)
            return False
        self.display.begin(asked, seconds)
        return True

    def _take(self, asked: RunRequest, lacking: str | None) -> bool:
        """Whether it is to be made once more."""
        spec_hash, found = asked.spec.hash, self.now(asked)
        self._tries[spec_hash] += 1
        attempts = len(found.missed) + len(self.unrecorded.get(spec_hash, ()))
        if lacking is None and found.state != DONE and attempts < self._tries[spec_hash]:
            lacking = "what came of it is a run of something else than was asked, such as of other code"
        if lacking is not None:
            self.unrecorded.setdefault(spec_hash, []).append(lacking)
            attempts += 1
        again = found.state != DONE and attempts < MAX_ATTEMPTS
        self.display.end(asked, found, lacking, again=again)
        return again


class _Waiting:
    """As of `executors.Waiting`."""

    def __init__(self, asked: Sequence[RunRequest], begin: Callable[[RunRequest], bool], display: Display) -> None:
        self.by_hash = {one.spec.hash: one for one in asked}
        self.asked = deque(asked)
        self.stop = Stop()
        self._begin = begin
        self._display = display

    def __bool__(self) -> bool:
        return bool(self.asked)

    def draw(self) -> RunSpec | None:
        while self.asked:
            self.look()
            asked = self.asked.popleft()
            if self._begin(asked):
                return asked.spec
        return None

    def look(self) -> None:
        self.stop.heed()

    def tell(self, spec: RunSpec, text: str) -> None:
        self._display.tell(self.by_hash[spec.hash], text)
