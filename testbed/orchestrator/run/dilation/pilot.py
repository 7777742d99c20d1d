"""`dilation=auto`: the run's own beginning is tried before the run, and its dilation follows from what was seen.

Workers are started, take some steps at the first guess, and are told to go on at another dilation where that is too
small or far too large; the links follow. Then they are killed: the run's own workers are forked anew, and know nothing
of it. The record has one event of each trial, and nothing else of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.emulation.traffic.background import BackgroundTraffic
from testbed.orchestrator.observation.collector import Collector
from testbed.orchestrator.run.dilation.calibration import Calibration
from testbed.orchestrator.run.dilation.first_guess import Load, most_dilation
from testbed.orchestrator.run.dilation.search import Search
from testbed.orchestrator.run.dilation.trial import Trial
from testbed.orchestrator.run.dilation.trial_fold import TrialFold
from testbed.orchestrator.run.links.measured_network import MeasuredNetwork
from testbed.orchestrator.run.workers.workers import Workers

BUDGET_S, BUDGET_RATIO = 10.0, 0.1
"""Wall time of all trials at most: seconds, or a share of the run, whichever is longer."""
LEAST_STEPS, LEAST_S, MOST_STEPS = 3, 1.5, 12
"""Steps and wall seconds of a trial, if the budget bears them; the most steps where it is long unsure."""
EXCHANGE_S = 3.0
"""Wall seconds that a trial waits for an exchange, where they are rare: assumed."""
END_S = 1.0
"""Part of the budget in which the workers are ended."""
LEAST_TRIED_S = 3.0
"""Wall seconds of steps that a pilot waits for all the same where starting its workers took the budget: assumed."""

Event = dict[str, Any]


def budget_s(steps: int | None, step_s: float, dilation: float) -> float:
    """Return the wall seconds that all trials of a run may take, until its workers are ended.

    Args:
        steps: Of the run; None if it does not say.
        step_s: Emulated.
    """
    return max(BUDGET_S, BUDGET_RATIO * (steps or 0) * step_s * dilation) - END_S


class Record(Protocol):
    """The part of a run's record that a pilot needs."""

    run: RunDir

    def write(self, event: Event) -> None: ...

    def stage(self, what: str, text: str) -> None: ...

    def progress(self, what: str, done: float, total: float | None = None) -> None: ...


class Pilot:
    """Finds the dilation of one run.

    Args:
        start: makes workers for a spec, whose words the second argument takes.
        begin: waits until they are connected and has them begin; returns the moments (CLOCK_MONOTONIC) at which the
            first could be started, and at which all begin.
        follow: passes on what workers say until the last argument says that it is enough; raises what goes wrong.
        seats: how many ranks can compute at a time: cores, or devices that ranks share.
    """

    def __init__(
        self,
        spec: RunSpec,
        links: MeasuredNetwork,
        record: Record,
        start: Callable[[RunSpec, Callable[[Event], None]], AbstractContextManager[Workers]],
        begin: Callable[[Workers], tuple[float, float]],
        follow: Callable[[Workers, Callable[[], bool]], None],
        seats: int,
    ) -> None:
        self._spec, self._links, self._record = spec, links, record
        self._start, self._begin, self._follow, self._seats = start, begin, follow, seats
        self._search = Search(spec.dilation, most_dilation(spec), links.least_dilation)
        load = self._first_guess()
        self._cycle_steps, step_s = (1, 0.0) if load is None else (load.steps, load.step_s)
        self._fold = self._new_fold(spec, first_step=2)
        self._began_s, self._budget_s = time.monotonic(), budget_s(spec.steps, step_s, spec.dilation)
        self._least_until_s = self._began_s

    def _first_guess(self) -> Load | None:
        """Return what steps are expected to ask; None if nobody knows before one is seen."""
        profiles = self._record.run.read_json(self._record.run.profiles)
        if profiles is None:
            return None
        found = Calibration.from_json(profiles)
        return Load.of(self._spec, found.cpu, found.device, self._seats)

    def choose(self) -> RunSpec:
        """Return the spec with the dilation that it is to have; the links have it then."""
        spec, self._links.report = self._spec, self._take
        try:
            with ExitStack() as stack:
                background = stack.enter_context(
                    BackgroundTraffic(self._links.network, spec.background, spec.dilation, self._take)
                )
                workers = stack.enter_context(self._start(spec, self._take))
                imported_s, t0_s = self._begin(workers)
                self._began_s = max(self._began_s, imported_s)  # a run without a pilot waits for that, too
                background.start(t0_s)
                with self._watched(workers, background):
                    self._try(workers, t0_s)
        finally:
            self._links.report = self._record.write
        self._put_logs_aside()
        chosen = dataclasses.replace(spec, dilation=self._search.chosen)
        if chosen.dilation != self._links.dilation:
            self._links.retime(chosen)
        if chosen.dilation != spec.dilation:
            self._links.measure_again()
        return chosen

    def _take(self, event: Event) -> None:
        self._fold.add(event)

    def _new_fold(self, spec: RunSpec, first_step: int) -> TrialFold:
        return TrialFold(spec.topology, spec.dilation, self._seats, first_step, self._spec.steps, self._cycle_steps)

    @contextlib.contextmanager
    def _watched(self, workers: Workers, background: BackgroundTraffic) -> Iterator[None]:
        links = self._links
        collector = Collector(links.network, workers.containers, background, self._take, links.prober.probes_sent)
        try:
            collector.start()
            try:
                yield
            finally:
                collector.stop()
            if collector.failure_text is not None:  # what was not seen decides nothing
                raise RunError(collector.failure_text)
        finally:
            collector.close()

    def _try(self, workers: Workers, t0_s: float) -> None:
        """One dilation after the other, as long as the budget bears it."""
        began_s = t0_s
        self._least_until_s = t0_s + LEAST_TRIED_S
        while True:
            self._fold.is_running = True
            self._follow(workers, self._is_enough(workers, began_s))
            self._fold.is_running = False
            trial = self._fold.trial()
            if trial is None:
                self._record.stage("pilot", self._search_by_hints())
                return
            why = self._search.take(trial)
            self._budget_s = budget_s(self._spec.steps or trial.steps, trial.step_s, self._search.dilation)
            now_s = time.monotonic()
            if workers.all_done or 2 * now_s - began_s > self._began_s + self._budget_s:
                self._search.give_up()
            self._tell(trial, why)
            if not self._search.wants_another:
                return
            began_s = self._change(workers)

    def _search_by_hints(self) -> str:
        """Search where no step that counts ended in the time of a pilot; return what was tried and found, in words."""
        tried = f"pilot at dilation {self._fold.dilation:g}: no step of all workers in time"
        busy_ratio, queued_ratio = self._fold.busy_ratio, self._fold.cold_queued_ratio
        self._search.take_hints(busy_ratio, queued_ratio, self._fold.others_ratio)
        known = [] if busy_ratio is None else [f"cores idle {1 - busy_ratio:.0%}"]
        if queued_ratio is not None:
            known.append(f"messages waited {queued_ratio:.1%} of the first step")
        known += _others(self._fold.others_ratio)
        return f"{tried}; {', '.join(known) or 'nothing is known'}, {self._search.chosen:g} is taken"

    def _tell(self, trial: Trial, why: str) -> None:
        search = self._search
        following = search.dilation if search.wants_another else search.chosen
        self._record.write(trial.to_event(following, why))
        then = f"next {following:g}" if search.wants_another else f"{following:g} is taken"
        seen = "; ".join([why] * bool(why) + _others(trial.others_ratio))
        self._record.stage(
            "pilot",
            f"pilot at dilation {trial.dilation:g}, {trial.steps} steps{seen and f': {seen}'};"
            f" {'kept' if following == trial.dilation else then}",
        )

    def _change(self, workers: Workers) -> float:
        """Go on at the dilation that is to be tried now; return when all have it."""
        spec = dataclasses.replace(self._spec, dilation=self._search.dilation)
        step, reached = self._fold.last_step + 2, self._fold.reached
        workers.pace(step, spec.dilation)
        self._fold = self._new_fold(spec, first_step=step + 1)
        self._fold.reached = reached
        self._links.retime(spec)
        self._follow(workers, lambda: workers.all_done or self._is_over() or min(reached.values()) >= step)
        return time.monotonic()

    def _is_over(self) -> bool:
        return time.monotonic() > max(self._began_s + self._budget_s, self._least_until_s)

    def _is_enough(self, workers: Workers, began_s: float) -> Callable[[], bool]:
        """Return whether the trial that began then may end, when it is asked."""

        def is_enough() -> bool:
            self._record.progress("pilot's seconds", int(time.monotonic() - self._began_s), round(self._budget_s))
            if workers.all_done or self._is_over():
                return True
            least_s = LEAST_S if self._fold.has_exchange else EXCHANGE_S
            if self._fold.steps < LEAST_STEPS or time.monotonic() - began_s < least_s:
                return False
            trial = self._fold.trial()
            return self._fold.steps >= MOST_STEPS or (trial is not None and trial.is_sure)

        return is_enough

    def _put_logs_aside(self) -> None:
        for node in (one.name for one in self._spec.topology.nodes):
            log = self._record.run.log(node)
            if log.exists():
                log.rename(log.with_name(f"{node}.pilot.log"))


def _others(ratio: float) -> list[str]:
    return [f"others take {ratio:.0%} of the cores"] if ratio else []
