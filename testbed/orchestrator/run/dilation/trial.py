"""Figures of some steps at a dilation, and which dilation they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.core.record.events.run import Pilot
from testbed.orchestrator.observation.verdict.lateness_rules import (
    AIM_LATE,
    LATE_SUSPECT,
    QUEUED_SUSPECT,
    slowdown_for,
)
from testbed.orchestrator.observation.verdict.machine_rules import IDLE_SUSPECT

Event = dict[str, Any]
MOST_LATE, MOST_QUEUED, MIN_IDLE = 0.5 * LATE_SUSPECT, 0.75 * QUEUED_SUSPECT, 1.5 * IDLE_SUSPECT
"""Figures beyond which a pilot asks for a slower run. Waits fall only in proportion to the dilation, so half of what
they may be would be twice the least dilation."""
AIM_QUEUED, AIM_IDLE, AIM_DELAY_LINE = 0.65 * QUEUED_SUSPECT, 2 * IDLE_SUSPECT, 0.7
"""Figures that a slower or faster run is to come to: assumed."""
NOTICED_LATE = 0.25
"""Share of `AIM_LATE` from which lateness says more than CPU seconds do: assumed."""
COMPUTE_MARGIN = 1.15
"""Factor of the CPU seconds of training threads, for all else on the cores: assumed."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Shares are of the emulated time of the steps; None where nothing was seen."""

    dilation: float
    steps: int
    """Number of steps that all ranks took and that count."""
    step_s: float
    """Mean emulated seconds of a step, each of its slowest rank."""
    saw_exchange: bool
    """True if a rank sent something in one of them, or none will in the run."""
    late_ratio: float
    late_doubt: float
    """Standard error of `late_ratio`, from step to step; infinite of a single step."""
    late_device_ratio: float
    """Share of a step that the device has for what was late."""
    queued_ratio: float
    computing_ratio: float
    """Share of a step that the device takes."""
    computing_dilation: float
    """Dilation at which CPU seconds of the training threads fill the time that the device gives them."""
    busy_ratio: float | None
    """Busy share of all cores."""
    others_ratio: float
    """Share of all cores that other processes and machines took; 0 where hardly any, or unknown."""
    delay_line_ratio: float | None
    """Lateness that as many seconds exceeded as may, over what is allowed; of all links together."""

    @property
    def holds(self) -> bool:
        """True if nothing came near what a `valid` run may be."""
        return not any(True for _ in self._excesses())

    @property
    def is_sure(self) -> bool:
        """True if more steps would hardly change whether phases are too late."""
        return abs(self.late_ratio - MOST_LATE) > self.late_doubt

    def slower(self) -> float:
        """Return the dilation at which all would be well, by what was seen; at least this one."""
        return max([self.dilation, *(self.dilation * times for times, _ in self._excesses())])

    def faster(self) -> float:
        """Return the least dilation at which all would still be well, by what was seen; at most this one.

        This one of steps without an exchange: the first guess knew of it, and nobody has seen what it takes.
        """
        if not self.saw_exchange:
            return self.dilation
        on_time = self.computing_ratio / (self.computing_ratio + AIM_LATE)
        floors = [
            COMPUTE_MARGIN * self.computing_dilation * on_time,
            self.dilation * self.queued_ratio / AIM_QUEUED,
            self.dilation * (self.busy_ratio or 0.0) / (1 - AIM_IDLE),
            self.dilation * (self.delay_line_ratio or 0.0) / AIM_DELAY_LINE,
        ]
        if self.late_ratio > NOTICED_LATE * AIM_LATE:
            floors.append(self.dilation * (1 + (self.late_ratio - AIM_LATE) / max(self.computing_ratio, AIM_LATE)))
        return min(self.dilation, max(1.0, *floors))

    def why(self) -> str:
        """Return why a slower run is asked for, in words."""
        return "; ".join(words for _, words in self._excesses())

    def _excesses(self) -> Iterator[tuple[float, str]]:
        """Yield how many times slower it had to be, and why in words, for each figure that was too large."""
        made_good = slowdown_for(self.late_ratio, self.late_device_ratio)
        if self.late_ratio > MOST_LATE and made_good > 1:
            yield made_good, f"phases late by {self.late_ratio:.1%}"
        if self.queued_ratio > MOST_QUEUED:
            yield self.queued_ratio / AIM_QUEUED, f"messages waited {self.queued_ratio:.1%} of the time"
        if self.busy_ratio is not None and 1 - self.busy_ratio < MIN_IDLE:
            yield self.busy_ratio / (1 - AIM_IDLE), f"cores idle {1 - self.busy_ratio:.0%}"
        if self.delay_line_ratio is not None and self.delay_line_ratio > 1:
            yield self.delay_line_ratio / AIM_DELAY_LINE, "packets left late"

    def to_event(self, next_dilation: float, why: str) -> Event:
        """Return the `pilot` event of this trial, with what followed from it."""
        return Pilot(
            dilation=self.dilation,
            steps=self.steps,
            step_s=self.step_s,
            late_ratio=self.late_ratio,
            queued_ratio=self.queued_ratio,
            cpu_idle_ratio=None if self.busy_ratio is None else 1 - self.busy_ratio,
            next_dilation=next_dilation,
            why=why,
        ).to_json()
