"""Searches the size of buckets while a training goes on, by the time that its steps take."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch

from compressors.base.compressor import Exchange
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.training import Tuning
from testbed.worker.communication.pending import Pending
from testbed.worker.device.clock import PhaseClock

TRIALS = 10
SKIPPED, MEASURED = 2, 3
"""Steps of a trial: the first ones still wait for what other buckets sent."""
CHANGED_SHARE = 0.15
"""Of the time of a step. Where what was found takes so much more or less, twice in a row, the network has changed."""
SMALLEST_SHARE = 512
"""The smallest size is so many times smaller than all gradients; the largest holds all."""
_FIRST = (0.5, 0.85)
"""Of the range of sizes, on its logarithmic scale: what is measured after the start, before the search has an idea.
Chosen, with no least hope of improvement, among some over models of pipelines: the mean of what was found there was
0.2 % above the best, the worst 1.2 %."""
_ASKED_AGAIN = 8
Grouping = Callable[[int], tuple[int, ...]]


class Search:
    """Bayesian optimization of one number, the logarithm of a size, in at most `TRIALS` measurements: a Gaussian
    process (Matern 5/2) and expected improvement, by the library `bayesian-optimization`.

    Sizes that make the same buckets are measured once. The first sizes are given: the start's, and two.
    """

    def __init__(self, least_bytes: int, most_bytes: int, start_bytes: int, grouping: Grouping) -> None:
        # takes more than a second, and one rank needs it
        from bayes_opt import BayesianOptimization
        from bayes_opt.acquisition import ExpectedImprovement

        low, high = math.log2(least_bytes), math.log2(max(most_bytes, least_bytes + 1))
        self._grouping = grouping
        self._optimizer = BayesianOptimization(
            f=None,
            pbounds={"log2": (low, high)},
            acquisition_function=ExpectedImprovement(xi=0.0),
            random_state=0,
            verbose=0,
            allow_duplicate_points=True,
        )
        self._first = [math.log2(start_bytes), *(low + share * (high - low) for share in _FIRST)]
        self._seconds: dict[Hashable, float] = {}
        self._sizes: dict[Hashable, int] = {}
        self._told: set[int] = set()
        self._scale_s = 0.0

    @property
    def trials(self) -> int:
        return len(self._seconds)

    @property
    def best(self) -> tuple[int, float]:
        """(size in bytes, seconds of a step) of the best that was measured."""
        key = min(self._seconds, key=lambda key: self._seconds[key])
        return self._sizes[key], self._seconds[key]

    def register(self, size_bytes: int, step_s: float) -> None:
        key = self._grouping(size_bytes)
        self._scale_s = self._scale_s or step_s
        self._seconds[key] = step_s
        self._sizes.setdefault(key, size_bytes)
        self._tell(size_bytes, step_s)

    def next(self) -> int | None:
        """The size to measure next; None: there is nothing more to learn."""
        if self.trials >= TRIALS:
            return None
        while self._first:
            size_bytes = round(2 ** self._first.pop(0))
            if self._grouping(size_bytes) not in self._seconds:
                return size_bytes
        for _ in range(_ASKED_AGAIN):
            size_bytes = round(2 ** float(self._optimizer.suggest()["log2"]))
            key = self._grouping(size_bytes)
            if key not in self._seconds:
                return size_bytes
            if size_bytes in self._told:
                return None  # nothing it hopes for is left
            self._tell(size_bytes, self._seconds[key])
        return None

    def _tell(self, size_bytes: int, step_s: float) -> None:
        self._told.add(size_bytes)
        # relative, so that what counts as better does not depend on how long steps are
        self._optimizer.register(params={"log2": math.log2(size_bytes)}, target=-step_s / self._scale_s)


@dataclass(frozen=True)
class Bounds:
    """Of the sizes that are searched."""

    least_bytes: int
    most_bytes: int

    def clamped(self, size_bytes: int) -> int:
        return min(max(size_bytes, self.least_bytes), self.most_bytes)


class FusionTuner:
    """On all ranks: every few steps rank 0 says which size comes next, by what its own steps took, and all agree.

    Zhang et al., "DeAR", ICDCS 2023, arXiv:2302.12445, section on dynamic tensor fusion. Differs from the paper: sizes
    are searched by their logarithm, a trial is the median of its steps, and the search begins anew when the time of a
    step changes after it.
    """

    def __init__(
        self,
        bounds: Bounds,
        start_bytes: int,
        grouping: Grouping,
        rank: int,
        clock: PhaseClock,
        send: Callable[[Exchange], Pending],
        record: Callable[[StepEvent], None],
    ) -> None:
        """
        Args:
            grouping: which buckets a size makes.
            send: carries the question of what is next, among all ranks.
            record: is given an event for each trial and each choice, on rank 0.
        """
        self.size_bytes = start_bytes
        self._bounds, self._grouping, self._clock, self._send = bounds, grouping, clock, send
        self._record = record
        self._search = Search(bounds.least_bytes, bounds.most_bytes, start_bytes, grouping) if rank == 0 else None
        self._found: tuple[int, float] | None = None
        """Once the search is over."""
        self._off = 0
        """Windows in a row in which steps took another time than what was found did."""
        self._steps_s: list[float] = []
        self._since_s: float | None = None
        self._step = 0
        self._asked: Pending | None = None

    def after_step(self) -> int | None:
        """Called once a step; the size of the next step's buckets, where it is another."""
        now_s = time.monotonic()
        if self._since_s is not None:
            self._steps_s.append((now_s - self._since_s) / self._clock.dilation)
        self._since_s = now_s
        self._step += 1
        if self._step == SKIPPED + MEASURED:
            with self._clock.phase("optimizer"):
                next_bytes = self._decide(statistics.median(self._steps_s[-MEASURED:]))
            self._asked = self._send(Exchange(kind="all_reduce", data=[torch.tensor([next_bytes], dtype=torch.int64)]))
        elif self._step > SKIPPED + MEASURED:
            return self._agree()
        return None

    def _agree(self) -> int | None:
        assert self._asked is not None
        (said,) = self._asked.wait()
        self._asked, self._step, self._steps_s = None, 0, []
        size_bytes = int(said.item())
        if size_bytes == self.size_bytes:
            return None
        self.size_bytes = size_bytes
        return size_bytes

    def _decide(self, step_s: float) -> int:
        """What comes next, after steps that took so long; 0 on other ranks, whose times are not asked for."""
        if self._search is None:
            return 0
        if self._found is not None:
            return self._watch(step_s)
        self._search.register(self.size_bytes, step_s)
        self._note("trial", self.size_bytes, step_s)
        following = self._search.next()
        if following is not None:
            return following
        self._found = self._search.best
        self._note("chosen", *self._found)
        return self._found[0]

    def _watch(self, step_s: float) -> int:
        assert self._found is not None
        size_bytes, found_s = self._found
        self._off = self._off + 1 if abs(step_s / found_s - 1) > CHANGED_SHARE else 0
        if self._off == 2:
            self._note("changed", size_bytes, step_s)
            self._off, self._found = 0, None
            self._search = Search(self._bounds.least_bytes, self._bounds.most_bytes, size_bytes, self._grouping)
            self._search.next()  # what is measured next is what there is
        return size_bytes

    def _note(self, what: str, size_bytes: int, step_s: float) -> None:
        assert self._search is not None
        self._record(
            Tuning(
                what=what,
                size_bytes=size_bytes,
                step_s=step_s,
                trial=self._search.trials,
                buckets=len(self._grouping(size_bytes)),
            )
        )
