"""Search for a dilation over few trials."""

from __future__ import annotations

from testbed.orchestrator.observation.verdict.lateness_rules import AIM_LATE
from testbed.orchestrator.run.dilation.first_guess import on_grid
from testbed.orchestrator.run.dilation.trial import AIM_IDLE, AIM_QUEUED, MIN_IDLE, MOST_LATE, MOST_QUEUED, Trial

WORTH_RATIO = 1.15
"""Ratio of dilations below which a shorter run is not worth another trial: assumed."""
UNTRIED_RATIO = 1.15
"""Factor of a dilation that no trial has seen.

What few steps say, a run at another dilation, or the arithmetic of the first guess is not exact. By the last one steps
of 15 s were late by 2.4 and 2.6 % at 8.75 and 6.7: docs/decisions/0078."""
MAX_STEP = 2.0
"""Largest ratio of a trial's dilation to the one before, either way: assumed."""


class Search:
    """Folds trials.

    Args:
        first: Dilation to begin with.
        most: Largest dilation that the links bear.
        least: Smallest one at which this machine fills them.
    """

    def __init__(self, first: float, most: float, least: float = 1.0) -> None:
        self._most, self._least = most, least
        self.dilation = first
        """Dilation that the run gets if no other trial follows."""
        self.wants_another = True
        self._others_ratio = 0.0
        """Share of all cores that others took in the last trial."""
        self._held: float | None = None
        """Least dilation that held."""
        self._failed = 0.0
        """Largest dilation that did not."""
        self._late: tuple[float, float] | None = None
        """The last dilation that did not, and how late phases were."""

    @property
    def chosen(self) -> float:
        """Dilation of the run, if no other trial follows.

        Others take cores unevenly, so the seconds of a trial do not tell what a run bears: it gets what it would need
        if it had needed what they took, as far as one trial may raise it.
        """
        times = 1 / max(1 - self._others_ratio, 1 / MAX_STEP)
        return min(self._most, on_grid(self.dilation * times))

    def take(self, trial: Trial) -> str:
        """Fold a trial of `dilation` in; return why the next one is another, in words, or nothing."""
        tried, self._others_ratio = trial.dilation, trial.others_ratio
        if trial.holds:
            self._held = min(tried, self._held or tried)
            lower = on_grid(max(trial.faster(), tried / MAX_STEP, WORTH_RATIO * self._failed, self._least))
            self.wants_another = lower * WORTH_RATIO <= tried
            self.dilation = lower if self.wants_another else self._held
            return f"would do at {lower:g}" if self.wants_another else ""
        self._failed = max(tried, self._failed)
        slower = max(trial.slower(), self._on_line(trial))
        self.dilation = min(self._most, on_grid(min(slower, MAX_STEP * tried)))
        self.wants_another = self.dilation > tried
        self._late = tried, trial.late_ratio
        if self._held is not None and self.dilation * WORTH_RATIO > self._held:
            self.wants_another, self.dilation = False, self._held
        return trial.why()

    def _on_line(self, trial: Trial) -> float:
        """Return where phases would be late by what is aimed at, on a line through this trial and the last that failed;
        0 of the first, or where they are late no more.

        A trial by itself takes for granted that what a step needs of the cores is the same at any dilation.
        """
        if self._late is None or trial.late_ratio <= MOST_LATE:
            return 0.0
        before, late_ratio = self._late
        fall = (late_ratio - trial.late_ratio) / (trial.dilation - before)
        if fall <= 0:
            return MAX_STEP * trial.dilation
        return trial.dilation + (trial.late_ratio - AIM_LATE) / fall

    def take_hints(self, busy_ratio: float | None, queued_ratio: float | None, others_ratio: float = 0.0) -> None:
        """Fold in all that is known of steps that last longer than a pilot may; no other trial follows.

        Args:
            busy_ratio: How busy the cores were with them.
            queued_ratio: Which share of the very first one its messages waited for a core.
            others_ratio: Which share of all cores others took.
        """
        slowdown = UNTRIED_RATIO
        if busy_ratio is not None and 1 - busy_ratio < MIN_IDLE:
            slowdown = max(slowdown, busy_ratio / (1 - AIM_IDLE))
        if queued_ratio is not None and queued_ratio > MOST_QUEUED:
            slowdown = max(slowdown, queued_ratio / AIM_QUEUED)
        self.dilation, self._others_ratio = min(self._most, on_grid(self.dilation * slowdown)), others_ratio
        self.wants_another = False  # one margin is enough
        self.give_up()

    def give_up(self) -> None:
        """Try no more: the run gets what held; where nothing did, a little more than was to be tried next."""
        if self.wants_another and self._failed:
            self.dilation = min(self._most, on_grid(UNTRIED_RATIO * self.dilation))
        self.wants_another = False
        self.dilation = self._held or self.dilation
