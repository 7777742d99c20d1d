"""Rules of the verdict on the virtual clock: whether workers were as fast as the devices they stand for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from testbed.core.record.spoiled_steps import NOTHING, LeftOut
from testbed.orchestrator.observation.verdict.link_rules import Event, Finding

LATE_SUSPECT, LATE_INVALID = 0.02, 0.05
QUEUED_SUSPECT, QUEUED_INVALID = 0.10, 0.30
AIM_LATE = 0.4 * LATE_SUSPECT
"""Lateness that a slower run is to come to, as a share of the emulated time: assumed."""
LATE_MARGIN = 1.25
"""Largest ratio of a dilation that is asked for to the least at which phases are late by what a `valid` run may be."""


def computing_s(event: Event) -> float:
    """Return the emulated seconds of a step in which a rank neither waited for others nor was late."""
    own_s: float = event["step_s"] - event["phase_s"]["exposed_communication"] - (event["late_s"] or 0.0)
    return max(0.0, own_s)


def late_device_s(event: Event) -> float:
    """Return the emulated seconds of a step that the device has for what was late, or is behind.

    They are no more than it computes, and as many where the rank is behind, or the record does not say.
    """
    is_behind = (event.get("behind_s") or 0.0) > max(event["late_s"] or 0.0, AIM_LATE * event["step_s"])
    told_s: float | None = None if is_behind else event.get("late_device_s")
    return computing_s(event) if told_s is None else min(told_s, computing_s(event))


def slowdown_for(late_ratio: float, device_ratio: float) -> float:
    """Return the factor of the dilation at which phases that are late by this share are hardly late.

    What the late stretches take of the wall stays; a slower run gives them more time, and has longer steps to be late
    in. Of those that the device has much time for, `AIM_LATE` remains. Lateness beside which it has next to none falls
    as 1/k alone, and costs a far slower run: there, `LATE_MARGIN` is enough.

    Args:
        device_ratio: Share of a step that the device has for what was late.
    """
    needed = device_ratio + late_ratio
    least = needed / (device_ratio + LATE_SUSPECT)
    return max(1.0, min(needed / (device_ratio + AIM_LATE), LATE_MARGIN * least))


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
        for ranks in self._remaining(left_out):
            events = ranks.values()
            time_s += max(event["step_s"] for event in events)
            late_s += max(event["late_s"] for event in events)
            queued_s += sum(event["queued_s"] for event in events) / len(ranks)
        return (late_s / time_s, queued_s / time_s) if time_s else (0.0, 0.0)

    def _remaining(self, left_out: LeftOut) -> Iterator[dict[int, Event]]:
        return (ranks for step, ranks in self._steps.items() if step not in left_out.steps)

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
        steps = [ranks.values() for ranks in self._remaining(left_out)]
        time_s = sum(max(event["step_s"] for event in events) for events in steps)
        device_s = sum(late_device_s(max(events, key=lambda event: event["late_s"])) for events in steps)
        return max(slowdown_for(late, device_s / time_s if time_s else 0.0), queued / QUEUED_SUSPECT)

    def is_invalid(self, left_out: LeftOut = NOTHING) -> bool:
        """Return True if a run is `invalid` for it."""
        return any(is_grave for is_grave, _ in self.findings(left_out))
