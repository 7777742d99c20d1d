"""Folds the events of some steps at a dilation into a trial, as the verdict folds a run's."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from testbed.core.spec.topology import Topology
from testbed.orchestrator.observation.verdict.lateness_rules import computing_s, late_device_s
from testbed.orchestrator.observation.verdict.link_rules import LATE_RATIO, LATE_S, LATE_SHARE_SUSPECT
from testbed.orchestrator.run.dilation.trial import Trial

Event = dict[str, Any]
SURE = 0.95
"""Probability aimed at that no link has more late seconds than a `valid` run may."""
NOTICED_OTHERS = 0.05
"""Share of all cores from which what others take is not taken for an error of the counters.

They said 0.02 of a core without others, and 0.45 beside a process that takes half of one."""


def _by_now_s(event: Event) -> float:
    """Return how late a rank was in a step, with what it is behind after it."""
    late_s: float = (event["late_s"] or 0.0) + (event["behind_s"] or 0.0)
    return late_s


class TrialFold:
    """Takes events of a pilot, from several threads.

    Args:
        topology: In emulated terms.
        first_step: The first that counts: those before are of another dilation, or have cold caches.
        run_steps: Number of steps of the run; None if it does not say.
        cycle_steps: Number of steps from one exchange to the next.
    """

    def __init__(
        self,
        topology: Topology,
        dilation: float,
        cores: int,
        first_step: int,
        run_steps: int | None = None,
        cycle_steps: int = 1,
    ) -> None:
        self._run_steps, self._cycle_steps = run_steps, cycle_steps
        self._delays_s = {
            (link.name, source): profile.delay_s
            for link in topology.wan_links
            for source, _, profile in link.directions()
        }
        self._workers = len(topology.nodes)
        self.dilation, self._cores, self.first_step = dilation, cores, first_step
        self._steps: dict[int, dict[int, Event]] = defaultdict(dict)
        self._idle: list[tuple[float, float]] = []
        self._others: list[tuple[float, float]] = []
        """CPU seconds of others, of so many of all cores."""
        self._late: list[float] = []
        self.is_running = False
        """True while seconds count: not before the links and all ranks have this dilation."""
        self._behind_s: dict[int, float] = {}
        """By rank, how far behind its device it was when the trial began."""
        self.reached: dict[int, int] = {}
        """Last step that each rank told."""
        self._cold: dict[int, Event] = {}
        """By rank, step 1: its caches are cold."""

    def add(self, event: Event) -> None:
        """Take an event as its sender says it: those of the network by the wall."""
        kind = event["event"]
        if kind == "step":
            self.reached[event["rank"]] = event["step"]
            if event["step"] >= self.first_step:
                self._steps[event["step"]][event["rank"]] = event
            else:
                self._behind_s[event["rank"]] = event["behind_s"] or 0.0
                if event["step"] == 1:
                    self._cold[event["rank"]] = event
        elif kind == "host" and self.is_running:
            self._idle.append((event["cpu_idle_ratio"], event["interval_s"]))
            if event.get("foreign_cpu_s") is not None:
                others_s = event["foreign_cpu_s"] + event["foreign_kernel_s"] + event["steal_s"]
                self._others.append((others_s, event["cpu_count"] * event["interval_s"]))
        elif kind == "delay_line" and self.is_running and event["late_p99_s"] is not None:
            delay_s = self._delays_s[event["name"], event["from"]]
            self._late.append(event["late_p99_s"] / self.dilation / max(LATE_S, LATE_RATIO * delay_s))

    @property
    def steps(self) -> int:
        """Number of steps that all ranks have told."""
        return len(self._whole())

    @property
    def has_exchange(self) -> bool:
        """True if a rank sent something in a step that all have told."""
        return any(event["payload_bytes"] for ranks in self._whole() for event in ranks.values())

    @property
    def last_step(self) -> int:
        """Last step that any rank has told."""
        return max(self.reached.values(), default=0)

    @property
    def busy_ratio(self) -> float | None:
        """Busy share of all cores while the trial ran; None if nobody looked yet."""
        watched_s = sum(interval_s for _, interval_s in self._idle)
        return 1 - sum(idle * each_s for idle, each_s in self._idle) / watched_s if watched_s else None

    @property
    def others_ratio(self) -> float:
        """Share of all cores that others took while the trial ran; 0 where hardly any, or nobody knows."""
        cores_s = sum(each_s for _, each_s in self._others)
        ratio = sum(others_s for others_s, _ in self._others) / cores_s if cores_s else 0.0
        return ratio if ratio >= NOTICED_OTHERS else 0.0

    @property
    def cold_queued_ratio(self) -> float | None:
        """Share of the very first step that its messages waited for a core; None if a rank has not told of it."""
        events = list(self._cold.values())
        if len(events) < self._workers:
            return None
        queued_s: float = statistics.fmean(event["queued_s"] for event in events)
        return queued_s / float(max(event["step_s"] for event in events))

    def _whole(self) -> list[dict[int, Event]]:
        return [ranks for ranks in list(self._steps.values()) if len(ranks) == self._workers]

    def trial(self) -> Trial | None:
        """Return the figures; None if no step was whole."""
        steps = self._whole()
        if not steps:
            return None
        time_s = sum(max(event["step_s"] for event in ranks.values()) for ranks in steps)
        late_s = self._late_s(steps)
        late_ratio, late_doubt = self._lateness(late_s, time_s / len(steps))
        queued_s = sum(statistics.fmean(event["queued_s"] for event in ranks.values()) for ranks in steps)
        device_s = sum(max(map(computing_s, ranks.values())) for ranks in steps)
        late_device = sum(late_device_s(max(ranks.values(), key=_by_now_s)) for ranks in steps)
        needed_s = sum(self._needed_s(ranks) for ranks in steps)
        late = sorted(self._late, reverse=True)
        return Trial(
            dilation=self.dilation,
            steps=len(steps),
            step_s=time_s / len(steps),
            saw_exchange=self.has_exchange or not 1 < self._cycle_steps <= (self._run_steps or math.inf),
            late_ratio=late_ratio,
            late_doubt=late_doubt,
            late_device_ratio=late_device / time_s if time_s else 0.0,
            queued_ratio=queued_s / time_s if time_s else 0.0,
            computing_ratio=device_s / time_s if time_s else 0.0,
            computing_dilation=needed_s / device_s if device_s else 1.0,
            busy_ratio=self.busy_ratio,
            others_ratio=self.others_ratio,
            delay_line_ratio=late[int(self._late_share(time_s / len(steps)) * len(late))] if late else None,
        )

    def _late_s(self, steps: Sequence[dict[int, Event]]) -> Sequence[float]:
        """Return how late each step was: by how much more the latest rank is behind since the step before.

        A rank that sends rarely is late when it sends; until then it is behind, and would be as late.
        """
        found, behind_s = [], max(self._behind_s.values(), default=0.0)
        for ranks in steps:
            found.append(max(map(_by_now_s, ranks.values())) - behind_s)
            behind_s = max(event["behind_s"] or 0.0 for event in ranks.values())
        return found

    def _late_share(self, step_s: float) -> float:
        """Return in which share of the seconds packets may leave late, of all links together.

        A verdict judges each link alone by its own seconds, and of many links with few seconds one is far later than
        the mean: in a short run each may hardly be late at all.
        """
        seconds = 2 * (self._run_steps or math.inf) * step_s * self.dilation  # those of both directions
        deviations = statistics.NormalDist().inv_cdf(SURE ** (2 / len(self._delays_s)))
        deviation: float = (LATE_SHARE_SUSPECT * (1 - LATE_SHARE_SUSPECT) / seconds) ** 0.5
        return max(0.0, LATE_SHARE_SUSPECT - deviations * deviation)

    def _lateness(self, late_s: Sequence[float], step_s: float) -> tuple[float, float]:
        """Return how late all the run's steps are to be expected as a share of their time, and the standard error.

        The first steps find caches cold and are later than others: those that are to come are like the last half.

        Args:
            late_s: Lateness of each step so far.
        """
        if not step_s:
            return 0.0, 0.0
        last = late_s[len(late_s) // 2 :]
        to_come = max(0, (self._run_steps or math.inf) - len(late_s))
        steadily_s, so_far_s = statistics.fmean(last), statistics.fmean(late_s)
        weight = 1.0 if to_come == math.inf else to_come / (to_come + len(late_s))
        doubt_s = statistics.stdev(last) / len(last) ** 0.5 if len(last) > 1 else math.inf
        return (weight * steadily_s + (1 - weight) * so_far_s) / step_s, doubt_s / step_s

    def _needed_s(self, ranks: dict[int, Event]) -> float:
        """Return the wall seconds in which these cores, or devices, do what all training threads did."""
        cpu_s = [float(event["cpu_s"]) for event in ranks.values()]
        return max(sum(cpu_s) / self._cores, *cpu_s)
