"""Steps that a run's figures and verdict leave out, since another machine or a foreign process took cores meanwhile.

Every step that overlaps such a second is a candidate, late or not, so that leaving steps out favours none. No more
than a tenth of the steps are left out, the most disturbed ones first; the rest is judged as it is. Seconds in which
the run held itself back are never an excuse (docs/decisions/0047).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAX_SHARE = 0.1
"""Largest share of a run's steps that are left out."""
DISTURBING_STEAL, DISTURBING_FOREIGN = 0.1, 0.2
"""Shares of one core, over a second, above which its steps may be left out: steal, and processes outside of the run."""
STARVED_IDLE = 0.1
"""Idle share of all cores below which they were short, as in the verdict."""
_TOUCHING_S = 1e-6
"""Emulated seconds by which a step may reach into a second without being part of it: its beginning is a difference."""
_OUTAGES = {"down": 1, "up": -1, "crash": 0, "leave": 0, "join": 0}
"""Kinds of `change` events that stop a link or a worker, and by how many links more are down after them."""


@dataclass(frozen=True)
class LeftOut:
    """Steps that are left out, and why."""

    steps: frozenset[int] = frozenset()
    reasons: tuple[str, ...] = ()
    seconds: tuple[tuple[float, float], ...] = ()
    """Emulated seconds (begin, end], in order, of which all steps are left out."""

    def covers(self, t_s: float) -> bool:
        """Return True if what happened at `t_s` belongs to no step that remains."""
        index = bisect.bisect_left(self.seconds, t_s, key=lambda second: second[1])
        return index < len(self.seconds) and self.seconds[index][0] < t_s

    def to_json(self) -> dict[str, Any]:
        return {"count": len(self.steps), "steps": sorted(self.steps), "reasons": list(self.reasons)}


NOTHING = LeftOut()


@dataclass(frozen=True)
class _Second:
    """Interval between two `host` events."""

    begin_s: float
    end_s: float
    interval_s: float
    """Length on the wall clock."""
    steal: float
    """Share of a core."""
    foreign: float
    """Share of a core."""
    is_own: bool
    """True if the run itself stopped or starved a worker, so that none of its steps may be left out."""

    @property
    def disturbance(self) -> float:
        """Share of a core that was taken, as far as it is more than is borne; 0 if it is not."""
        steal = self.steal if self.steal > DISTURBING_STEAL else 0.0
        foreign = self.foreign if self.foreign > DISTURBING_FOREIGN else 0.0
        return 0.0 if self.is_own else steal + foreign


@dataclass
class _Step:
    begin_s: float
    end_s: float
    ranks: set[int]


class SpoiledSteps:
    """Folds the events of a run, in the order of the record; `left_out` may be asked at any time."""

    def __init__(self) -> None:
        self._seconds: list[_Second] = []
        self._steps: dict[int, _Step] = {}
        self._ranks: set[int] = set()
        self._missed: set[int] = set()
        """Ranks that have left, whether or not they came back."""
        self._host_s = -math.inf
        self._was_stopped = False
        self._throttled_s: dict[str, float] = {}
        self._links_down = 0
        self._has_outage = False
        """True if a worker or a link was stopped since the last `host` event."""

    def add(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "step":
            self._add_step(event)
        elif kind == "host":
            self._add_second(event)
        elif kind == "node":
            throttled_s = event.get("throttled_s") or 0.0
            self._has_outage |= throttled_s > self._throttled_s.get(event["node"], 0.0)
            self._throttled_s[event["node"]] = throttled_s
        elif kind == "change" and event["what"] in _OUTAGES:
            self._links_down = max(0, self._links_down + _OUTAGES[event["what"]])
            self._has_outage = True
        elif kind == "left" or (kind == "start" and event["rank"] in self._missed):
            self._missed.add(event["rank"])
            self._has_outage = True

    def _add_step(self, event: Mapping[str, Any]) -> None:
        t_s, step_s, rank = event.get("t_s"), event.get("step_s"), event.get("rank")
        if t_s is None or step_s is None or rank is None:
            return
        self._ranks.add(rank)
        step = self._steps.setdefault(event["step"], _Step(math.inf, -math.inf, set()))
        step.begin_s, step.end_s = min(step.begin_s, t_s - step_s), max(step.end_s, t_s)
        step.ranks.add(rank)

    def _add_second(self, event: Mapping[str, Any]) -> None:
        begin_s, self._host_s = self._host_s, event["t_s"]
        is_stopped = bool(event.get("stopped_processes"))
        is_own = self._has_outage or self._links_down > 0 or is_stopped or self._was_stopped
        self._has_outage, self._was_stopped = False, is_stopped
        foreign_s, cpu_count, interval_s = event.get("foreign_cpu_s"), event.get("cpu_count"), event["interval_s"]
        if foreign_s is None or not cpu_count or interval_s <= 0:
            is_own, foreign_s, cpu_count = True, 0.0, 1  # nobody knows who took the cores
        interval_s = max(interval_s, 1e-9)
        steal, foreign = event["steal_s"] / interval_s, foreign_s / interval_s
        is_own |= event["cpu_idle_ratio"] + (steal + foreign) / cpu_count < STARVED_IDLE
        self._seconds.append(_Second(begin_s, self._host_s, interval_s, steal, foreign, is_own))

    def left_out(self) -> LeftOut:
        """Return the steps to leave out, no more than a tenth of those that all ranks took and which stayed."""
        stayed = self._ranks - self._missed
        common = {number: step for number, step in self._steps.items() if stayed and stayed <= step.ranks}
        most = math.floor(MAX_SHARE * len(common) + 1e-9)
        if not most or not any(second.disturbance for second in self._seconds):
            return NOTHING
        worst = {number: self._disturbance(step) for number, step in common.items()}
        disturbed = sorted((number for number, share in worst.items() if share), key=lambda n: (-worst[n], n))
        steps = frozenset(disturbed[:most])
        gone = [self._steps[number] for number in steps]
        touched = {second for step in gone for second in self._overlapping(step)}
        kept = {s for n, step in self._steps.items() if n not in steps for s in self._overlapping(step)}
        seconds = sorted((second.begin_s, second.end_s) for second in touched - kept)
        reasons = list(_reasons(touched))
        if len(disturbed) > most:
            reasons.append(f"{len(disturbed)} steps were disturbed, of which no more than a tenth of the run's go")
        return LeftOut(steps, tuple(reasons), tuple(seconds))

    def _overlapping(self, step: _Step) -> list[_Second]:
        first = bisect.bisect_right(self._seconds, step.begin_s + _TOUCHING_S, key=lambda second: second.end_s)
        last = bisect.bisect_left(self._seconds, step.end_s - _TOUCHING_S, key=lambda second: second.begin_s)
        return self._seconds[first:last]

    def _disturbance(self, step: _Step) -> float:
        """Return the share of a core that was taken in a step's worst second; 0 if the run itself held it back."""
        seconds = self._overlapping(step)
        if any(second.is_own for second in seconds):
            return 0.0
        return max((second.disturbance for second in seconds), default=0.0)


def left_out(events: Iterable[Mapping[str, Any]]) -> LeftOut:
    """Return the steps to leave out of a whole record; events that cannot be read count for nothing."""
    spoiled = SpoiledSteps()
    for event in events:
        try:
            spoiled.add(event)
        except (KeyError, TypeError, ValueError):
            continue
    return spoiled.left_out()


def _reasons(seconds: Iterable[_Second]) -> Iterator[str]:
    disturbed = [second for second in seconds if second.disturbance]
    foreign = [(second.foreign, second) for second in disturbed if second.foreign > DISTURBING_FOREIGN]
    steal = [(second.steal, second) for second in disturbed if second.steal > DISTURBING_STEAL]
    for found, words in (
        (foreign, "a process outside of the run took up to {:.2f} of a core"),
        (steal, "another machine took up to {:.2f} of a core (steal)"),
    ):
        if found:
            first_s = max(0.0, min(second.begin_s for _, second in found))
            lasted_s = sum(second.interval_s for _, second in found)
            share = max(share for share, _ in found)
            yield f"{words.format(share)} ({lasted_s:.0f} s by the wall, first at {first_s:.0f} s)"
