"""Rules of the verdict on the virtual clock: whether workers were as fast as the devices they stand for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from testbed.core.record.spoiled_steps import NOTHING, LeftOut
from testbed.orchestrator.observation.verdict.link_rules import Event, Finding

LATE_SUSPECT, LATE_INVALID = 0.02, 0.05
QUEUED_SUSPECT, QUEUED_INVALID = 0.10, 0.30


class Lateness:
    """Late phases, and messages that waited for a core.

    Of a step, the latest rank counts for phases: all others wait for what it sends. Of messages it is the mean over
    ranks, since each rank handles as many, one after another, and a collective's duration holds the waits of a chain of
    them. That chain is no longer than the mean says where waits are of one kind; where links have the messages wait
    anyway, it is shorter: with 4 ranks on 2 cores and waits of 1.7% at k = 1, steps took 1.1% longer than at k = 4.
    """

    def __init__(self) -> None:
        self._steps: dict[int, dict[int, Event]] = defaultdict(dict)

    def add(self, event: Event) -> None:
        if event["event"] == "step" and event.get("late_s") is not None:
            self._steps[event["step"]][event["rank"]] = event

    @property
    def is_known(self) -> bool:
        return bool(self._steps)

    def shares(self, left_out: LeftOut = NOTHING) -> tuple[float, float]:
        """Return which shares of the emulated time were late, and spent in queues for a core, of steps that remain."""
        late_s = queued_s = time_s = 0.0
        for ranks in (ranks for step, ranks in self._steps.items() if step not in left_out.steps):
            events = ranks.values()
            time_s += max(event["step_s"] for event in events)
            late_s += max(event["late_s"] for event in events)
            queued_s += sum(event["queued_s"] for event in events) / len(ranks)
        return (late_s / time_s, queued_s / time_s) if time_s else (0.0, 0.0)

    def findings(self, left_out: LeftOut = NOTHING) -> Iterator[Finding]:
        late, queued = self.shares(left_out)
        if late > LATE_SUSPECT:
            text = f"the workers' phases were late by {late:.1%} of the time: the cores are too slow for this dilation"
            yield late > LATE_INVALID, text
        if queued > QUEUED_SUSPECT:
            text = f"messages of the workers waited for a core {queued:.1%} of the time"
            yield queued > QUEUED_INVALID, text

    def needed_slowdown(self, left_out: LeftOut = NOTHING) -> float:
        """Return the factor of the dilation for phases to be hardly late, and messages as in a `valid` run."""
        late, queued = self.shares(left_out)
        return max(1 + 2 * late, queued / QUEUED_SUSPECT)

    def is_invalid(self, left_out: LeftOut = NOTHING) -> bool:
        """Return True if a run is `invalid` for it."""
        return any(is_grave for is_grave, _ in self.findings(left_out))
