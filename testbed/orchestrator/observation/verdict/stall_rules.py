"""Rules of the verdict on single steps: those in which a process stood still, and those far from all others."""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from testbed.core.record.spoiled_steps import NOTHING, LeftOut
from testbed.core.units import format_time
from testbed.orchestrator.observation.verdict.link_rules import Event, Finding

STALLED_SUSPECT, STALLED_INVALID = 0.02, 0.05
"""Shares of the run's time that steps took longer than others, as of late phases."""
FAR_TIMES = 5.0
"""Typical steps that a single one is as long as, at least, to be far from them."""
MIN_ALIKE = 8
"""Fewer steps of a kind tell no typical one, by which one is far from it."""
MAX_FAR_SHARE = 0.1
"""Largest share of steps of a kind: more are a kind of their own, such as those in which K-FAC inverts factors."""
_CHANGED_S = 2.0
"""Emulated seconds after a change of the network, of the workers or of the model in which a step may be longer."""
_CHANGES = ("change", "left", "start", "transform")
_ALIKE_RATIO = 1.2
"""Steps of which all ranks together send as many bytes, up to about this factor, are of a kind."""


@dataclass
class _Step:
    """One step of all ranks that told of it."""

    begin_s: float
    end_s: float
    ranks: dict[int, float] = field(default_factory=dict)
    """By rank: from the end of its step before to the end of this one, so that nothing lies between two steps."""
    payload_bytes: int = 0

    @property
    def span_s(self) -> float:
        return max(self.ranks.values())

    @property
    def kind(self) -> int:
        """Number that steps which exchange alike have in common; 0 for those that send nothing."""
        return 1 + round(math.log(self.payload_bytes, _ALIKE_RATIO)) if self.payload_bytes else 0


class Stalls:
    """Tells if single steps took far longer than others of their kind, and what is known of why.

    A process that a signal or its cgroup has stopped is seen once a second. It does harm as far as the steps meanwhile
    took longer than others: what stops in a pacing sleep and goes on before its end does none.

    Args:
        has_steps: False for programs that tell of no steps, of which a stop is judged by nothing.
        is_steady: True if no link loses packets and no traffic of others shares one: no step has to be far from others.
    """

    def __init__(self, *, has_steps: bool, is_steady: bool) -> None:
        self._has_steps, self._is_steady = has_steps, is_steady
        self._steps: dict[int, _Step] = {}
        self._ended_s: dict[int, float] = {}
        """By rank, its last step's end."""
        self._seen: list[tuple[float, int]] = []
        """When the collector looked, and how many processes it saw stopped."""
        self._changed_s: list[float] = []

    def add(self, event: Event) -> None:
        """Fold an event in."""
        kind = event["event"]
        if kind == "step" and event.get("step_s") is not None:
            t_s, rank = event["t_s"], event["rank"]
            begin_s = self._ended_s.get(rank, t_s - event["step_s"])
            self._ended_s[rank] = t_s
            step = self._steps.setdefault(event["step"], _Step(begin_s, t_s))
            step.begin_s, step.end_s = min(step.begin_s, begin_s), max(step.end_s, t_s)
            step.ranks[rank] = t_s - begin_s
            step.payload_bytes += event["payload_bytes"]
        elif kind == "host":
            self._seen.append((event["t_s"], event.get("stopped_processes") or 0))
        elif kind in _CHANGES and event["t_s"] > 0:
            self._changed_s.append(event["t_s"])

    def stopped_s(self) -> list[tuple[float, float]]:
        """Return the times in which a process may have been stopped: between the looks before and after."""
        looks = [(0.0, 0), *((t_s, count) for t_s, count in self._seen if t_s > 0)]
        found: list[tuple[float, float]] = []
        for (begin_s, before), (end_s, after) in pairwise(looks):
            if before or after:
                joins = found and found[-1][1] == begin_s
                found = [*found[:-1], (found[-1][0], end_s)] if joins else [*found, (begin_s, end_s)]
        return found

    def findings(self, left_out: LeftOut = NOTHING) -> Iterator[Finding]:
        """Yield what stood still, and steps that are far from all others."""
        stopped = self.stopped_s()
        steps = {number: step for number, step in self._steps.items() if number not in left_out.steps}
        time_s = sum(step.span_s for step in steps.values())
        if stopped:
            kinds = _sorted_out(steps, lambda step: bool(step.payload_bytes))
            yield from self._stopped(stopped, kinds, time_s)
        elif self._is_steady and time_s:
            for of_kind in _sorted_out(steps, lambda step: step.kind):
                yield from self._far(of_kind, time_s)

    def _stopped(
        self, stopped: list[tuple[float, float]], kinds: list[dict[int, _Step]], time_s: float
    ) -> Iterator[Finding]:
        first_s, lasted_s = stopped[0][0], sum(end_s - begin_s for begin_s, end_s in stopped)
        who = f"a process of the run was stopped for up to {format_time(lasted_s)}, first at {first_s:.0f} s"
        if not self._has_steps or not time_s:
            yield False, f"{who}: what that did to the program is not known"
            return
        excess_s = 0.0
        for of_kind in kinds:
            spans = {number: step.span_s for number, step in of_kind.items()}
            hit = {number for number, step in of_kind.items() if _overlaps(stopped, step)}
            others = [span_s for number, span_s in spans.items() if number not in hit]
            if hit and not others and len(spans) < 2:
                yield False, f"{who}: no other step tells how long step {min(hit)} takes without that"
                return
            usual_s = statistics.median(others) if others else min(spans.values())
            excess_s += sum(max(0.0, spans[number] - usual_s) for number in hit)
        share = excess_s / time_s
        if share > STALLED_SUSPECT:
            yield share > STALLED_INVALID, f"{who}: steps took {share:.1%} of the time longer than others"

    def _far(self, steps: dict[int, _Step], time_s: float) -> Iterator[Finding]:
        if len(steps) < MIN_ALIKE:
            return
        usual_s = statistics.median(step.span_s for step in steps.values())
        far = {number: step for number, step in steps.items() if step.span_s > FAR_TIMES * usual_s}
        if len(far) > max(1, int(MAX_FAR_SHARE * len(steps))):
            return
        unexplained = {number: step.span_s for number, step in far.items() if number > 1 and not self._explains(step)}
        excess_s = sum(span_s - usual_s for span_s in unexplained.values())
        if excess_s > STALLED_SUSPECT * time_s:
            worst = max(unexplained, key=lambda number: unexplained[number])
            text = f"step {worst} took {format_time(unexplained[worst])}, others {format_time(usual_s)}"
            yield False, f"{text}: nothing in the record explains it, so a worker may have stood still"

    def _explains(self, step: _Step) -> bool:
        return any(step.begin_s - _CHANGED_S <= at_s <= step.end_s for at_s in self._changed_s)


def _overlaps(seconds: list[tuple[float, float]], step: _Step) -> bool:
    index = bisect.bisect_right(seconds, step.begin_s, key=lambda second: second[1])
    return index < len(seconds) and seconds[index][0] < step.end_s


def _sorted_out(steps: dict[int, _Step], kind_of: Callable[[_Step], int]) -> list[dict[int, _Step]]:
    kinds: dict[int, dict[int, _Step]] = defaultdict(dict)
    for number, step in steps.items():
        kinds[kind_of(step)][number] = step
    return list(kinds.values())
