"""Some runs at a time, as a sweep makes its own: what is there is not made again, what failed is made once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.orchestrator.executors.executor import Executor
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep.display import Display
from testbed.orchestrator.search.sweep.estimates import estimates
from testbed.orchestrator.search.sweep.scheduler import SweepScheduler
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, GIVEN_UP, RunStatus, standing


@dataclass(frozen=True)
class Made:
    standing: RunStatus
    why_not: str | None
    """Of a run that does not count; None: it does."""


@dataclass(frozen=True)
class RetryingRunner:
    """Of one command, whose place is held already."""

    name: str
    kept: KeptRuns
    place: Executor
    on_error_stream: bool
    """Standard output is for what a script reads."""

    def runs(self, asked: Sequence[RunRequest]) -> list[Made]:
        """In their order.

        Raises:
            InputError: one of them cannot be made; MachineError: none can.
            Interrupted: somebody asked for the end; what is sealed stays.
        """
        found = [standing(one, self.kept) for one in asked]
        lacking = [one.asked for one in found if one.state not in (DONE, GIVEN_UP)]
        unrecorded: dict[str, list[str]] = {}
        if lacking:
            expected = estimates(lacking, self.kept.runs_root)
            with Display(self.name, found, expected, on_error_stream=self.on_error_stream) as display:
                scheduler = SweepScheduler(self.kept, expected, display)
                scheduler.follow(found, self.place)
            if scheduler.error is not None:
                raise scheduler.error
            found, unrecorded = [scheduler.now(one) for one in asked], scheduler.unrecorded
        return [Made(one, _why_not(one, unrecorded.get(one.asked.spec.hash, []))) for one in found]


def _why_not(one: RunStatus, unrecorded: Sequence[str]) -> str | None:
    if one.done is not None:
        return None
    return "; ".join([*([one.why] if one.missed else []), *(f"failed: {reason}" for reason in unrecorded)])
