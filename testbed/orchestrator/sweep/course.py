"""The course of a sweep: what lacks is made, what failed is made once more, what would end too late is left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.core.errors import Interrupted, LonghaulError
from testbed.core.spec import RunSpec
from testbed.orchestrator.kept_runs import KeptRuns
from testbed.orchestrator.supervise import Stop
from testbed.orchestrator.sweep.display import Display
from testbed.orchestrator.sweep.estimates import Estimate
from testbed.orchestrator.sweep.executors import Executor
from testbed.orchestrator.sweep.specs import Asked
from testbed.orchestrator.sweep.standing import DONE, GIVEN_UP, MOST_ATTEMPTS, Standing, standing


@dataclass
class Course:
    """One call's. The folder of runs is asked after each run; nothing else says whether it counts."""

    kept: KeptRuns
    estimates: Mapping[str, Estimate]
    display: Display
    most_s: float | None = None
    """No run is begun that would end later than this after the call's beginning, by its estimate."""
    forgotten: frozenset[str] = frozenset()
    """Runs that are no attempts any more."""
    left: list[Asked] = field(default_factory=list)
    """What there was no time for."""
    error: LonghaulError | None = None
    """Why it ended before its end."""
    unrecorded: dict[str, list[str]] = field(default_factory=dict)
    """By the hash of a spec, why an attempt left no record."""
    _began_s: float = field(default_factory=time.monotonic)

    def follow(self, standings: Sequence[Standing], executor: Executor) -> None:
        """Until all is done, given up or left, or `error` says why not; never raises that."""
        by_hash = {one.asked.spec.hash: one.asked for one in standings}
        waiting = deque(one.asked for one in standings if one.state not in (DONE, GIVEN_UP))
        with Stop() as stop:
            try:
                for spec, lacking in executor.perform(self._drawn(waiting, stop)):
                    if self._take(by_hash[spec.hash], lacking):
                        waiting.append(by_hash[spec.hash])
            except LonghaulError as error:
                self.error = error

    def now(self, asked: Asked) -> Standing:
        return standing(asked, self.kept, self.forgotten)

    def _drawn(self, waiting: deque[Asked], stop: Stop) -> Iterator[RunSpec]:
        while waiting:
            if stop.asked is not None:
                raise Interrupted(f"stopped by {stop.asked.name}")
            asked = waiting.popleft()
            seconds = self.estimates[asked.spec.hash].seconds
            if self.most_s is not None and time.monotonic() - self._began_s + (seconds or 0.0) > self.most_s:
                self.left.append(asked)
                self.display.left(asked, seconds)
                continue
            self.display.begin(asked, seconds)
            yield asked.spec

    def _take(self, asked: Asked, lacking: str | None) -> bool:
        """Whether it is to be made once more."""
        if lacking is not None:
            self.unrecorded.setdefault(asked.spec.hash, []).append(lacking)
        found = self.now(asked)
        attempts = len(found.missed) + len(self.unrecorded.get(asked.spec.hash, ()))
        again = found.state != DONE and attempts < MOST_ATTEMPTS
        self.display.end(asked, found, lacking, again=again)
        return again
