"""One rank's reduction of a bucket in a step, timed round by round on a core of this machine; nothing is sent."""

from __future__ import annotations

import copy
import dataclasses
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Exchange, Layout, Rounds
from compressors.base.feedback import with_feedback
from testbed.core.device.codecs.work import CodecWork
from testbed.core.device.profile import Collective
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.communication.pending import Pending
from testbed.worker.device.clock import PhaseClock, cpu_s
from testbed.worker.profile.codec_counts import Counting
from testbed.worker.reduction.reducer import Reducer
from testbed.worker.reduction.rehearsal import Echo
from testbed.worker.training.parts import build_parts

_MAX_TOTAL_NUMEL = 1 << 28
"""Elements of one bucket on all ranks together: 1 GiB, and as much again for residuals."""
_QUICK_S = 1.0
"""What is done once more so that memory is there, or for what others keep of it, takes no longer."""


@dataclass(frozen=True)
class Timed:
    """One reduction."""

    rounds: tuple[tuple[str, float], ...]
    """Phases in order, each with its CPU seconds."""
    collectives: tuple[Collective, ...]
    work: tuple[CodecWork, ...] = ()
    """Work of each round; empty until it was counted."""

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.rounds)


class Alone:
    """One rank, whose payloads pass for those of the others."""

    def __init__(self, spec: RunSpec, layout: Layout) -> None:
        self._echo, self._clock = _RecordingEcho(spec.workers, spec.timeout_s), _RecordingClock()
        self._reducer = Reducer(_fresh_compressor(spec), self._echo, self._clock, spec.topology, spec.seed)
        self._layout = layout
        traits = self._reducer.compressor.traits
        gathered = not traits.own_rounds and traits.sum_dtype is None
        if gathered and traits.chunkable and layout.numel > spec.workers:
            # Parts of one size, so that this rank's payload passes for any other's; in all steps, though only some may
            # send parts, since what is kept from step to step is as large as the bucket.
            even = layout.numel - layout.numel % spec.workers
            self._layout = dataclasses.replace(layout, shapes=((even,),), names=())
        self._gradient = _gradient(self._layout.numel, 0)

    def once(self, step: int) -> Timed:
        """Return the times of one step.

        Raises:
            PayloadError: what this rank sends does not pass for what others would.
        """
        self._clock.rounds.clear()
        self._echo.collectives.clear()
        self._take(step)
        return Timed(tuple(self._clock.rounds[self._layout.numel]), tuple(self._echo.collectives))

    def work(self, step: int) -> tuple[CodecWork, ...]:
        """Return what each round of a step does."""
        found = list[CodecWork]()
        self._clock.counting = functools.partial(Counting, self._reducer.compressor, found)
        self._take(step)
        self._clock.counting = None
        return tuple(found)

    def _take(self, step: int) -> None:
        self._reducer.start(self._gradient.clone(), self._layout, step)
        self._reducer.finish()


class AmongAll:
    """Rank 0, beside all others: a step is taken by all of them, once, and then by rank 0 with what it got then.

    Args:
        why: its payloads do not pass for others'.
        end_s: when to give up, by CLOCK_MONOTONIC.

    Raises:
        InputError: so many do not fit one process.
    """

    def __init__(self, spec: RunSpec, layout: Layout, why: Exception, end_s: float) -> None:
        self._layout, self._end_s = layout, end_s
        self._refusal = f"compressor: {why}; its times can be measured among {spec.workers} ranks only, "
        if spec.workers * layout.numel > _MAX_TOTAL_NUMEL:
            raise InputError(
                f"{self._refusal}whose buckets of {layout.numel} elements do not fit one process: fewer workers, or a"
                " smaller strategy.bucket_size"
            )
        self._reducers = [planner(spec, rank) for rank in range(spec.workers)]
        self._again = planner(spec)
        self._gradient = _gradient(layout.numel, 0)
        self._before: dict[int, Compressor] = {}
        self._arrived: dict[int, list[list[Tensor]]] = {}

    def once(self, step: int) -> Timed:
        """Return the times of one step of rank 0.

        Raises:
            InputError: the ranks did not come to the end of a step in time.
        """
        if step not in self._arrived:
            since_s, first = time.monotonic(), not self._arrived
            self._together(step)
            if first and time.monotonic() - since_s < _QUICK_S:
                self._together(step)  # with what is kept from a step before
        noted: list[tuple[str, float]] = []
        collectives = self._again_alone(step, lambda phase: _Noted(noted, phase))
        return Timed(tuple(noted), tuple(collectives))

    def work(self, step: int) -> tuple[CodecWork, ...]:
        """Return what each round of a step that was taken does."""
        found = list[CodecWork]()
        self._again_alone(step, lambda _: Counting(self._again.compressor, found))
        return tuple(found)

    def _again_alone(self, step: int, watched: Callable[[str], AbstractContextManager[object]]) -> list[Collective]:
        """Rank 0 takes the step again, each round inside of what `watched` makes of its phase."""
        self._again.compressor = copy.deepcopy(self._before[step])
        rounds = self._again.rounds(self._gradient.clone(), self._layout, step)
        collectives: list[Collective] = []
        with watched("compress"):
            asked = _resume(rounds, None)
        for results in self._arrived[step]:
            assert asked is not None, "it asks for as much as it did before from the same state"
            collectives.append(_collective(asked))
            results = [result.clone() for result in results]
            with watched(asked.then):
                asked = _resume(rounds, results)
        return collectives

    def _together(self, step: int) -> None:
        """All ranks take the step; what rank 0 is before it, and gets in it, is kept."""
        self._before[step] = copy.deepcopy(self._reducers[0].compressor)
        arrived: list[list[Tensor]] = []
        rounds = [
            reducer.rounds(_gradient(self._layout.numel, rank), self._layout, step)
            for rank, reducer in enumerate(self._reducers)
        ]
        asked = [self._resumed(one, None) for one in rounds]
        while (all_asked := [one for one in asked if one is not None]) and asked[0] is not None:
            ours = _received(all_asked, 0)
            arrived.append([one.clone() for one in ours])
            since_s = time.monotonic()
            asked = [self._resumed(rounds[0], ours)]
            if asked[0] is None and (time.monotonic() - since_s) * len(rounds) > _QUICK_S:
                break  # what the others would do now is for none but themselves
            asked += [self._resumed(one, _received(all_asked, rank)) for rank, one in enumerate(rounds) if rank]
        self._arrived[step] = arrived

    def _resumed(self, rounds: Rounds, results: list[Tensor] | None) -> Exchange | None:
        if time.monotonic() > self._end_s:
            raise InputError(
                f"{self._refusal}which takes too long on a core of this machine, for buckets of {self._layout.numel}"
                " elements: fewer workers"
            )
        return _resume(rounds, results)


def _fresh_compressor(spec: RunSpec) -> Compressor:
    """As the run has it at its beginning."""
    parts = build_parts(spec)
    compressor = with_feedback(parts.compressor)
    compressor.adopt(parts.workload.optimizer([torch.nn.Parameter(torch.zeros(1))]))
    return compressor


def planner(spec: RunSpec, rank: int = 0) -> Reducer:
    """Return the reducer that `rank` has at the beginning; asked for its rounds, it sends nothing."""
    echo = Echo(rank, spec.workers, spec.timeout_s)
    return Reducer(_fresh_compressor(spec), echo, PhaseClock(), spec.topology, spec.seed)


class _RecordingClock(PhaseClock):
    """Notes the CPU seconds of each round."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: dict[int, list[tuple[str, float]]] = defaultdict(list)
        self.counting: Callable[[], Counting] | None = None
        """Counts rounds; None: their time is noted."""

    def codec(self, name: str, elements: int, round_: int) -> Any:
        return _Noted(self.rounds[elements], name) if self.counting is None else self.counting()


class _Noted:
    def __init__(self, rounds: list[tuple[str, float]], name: str) -> None:
        self._rounds, self._name = rounds, name

    def __enter__(self) -> None:
        self._since_s = cpu_s()

    def __exit__(self, *_: object) -> None:
        self._rounds.append((self._name, cpu_s() - self._since_s))


class _RecordingEcho(Echo):
    """Notes what is asked for."""

    def __init__(self, world_size: int, timeout_s: float) -> None:
        super().__init__(0, world_size, timeout_s)
        self.collectives: list[Collective] = []

    def run(self, exchange: Exchange) -> Pending:
        self.collectives.append(_collective(exchange))
        return super().run(exchange)


def _collective(asked: Exchange) -> Collective:
    return Collective(kind=asked.kind, size_bytes=sum(part.nbytes for part in asked.data))


def _received(asked: Sequence[Exchange], rank: int) -> list[Tensor]:
    """What comes to `rank` of what all ask for, in memory of its own: for one rank at a time, since all have much."""
    if asked[0].kind == "all_to_all":
        return [one.data[rank].clone() for one in asked]
    if asked[0].kind == "all_gather":
        return [one.data[0].clone() for one in asked]
    total = asked[0].data[0].clone()
    for other in asked[1:]:
        (torch.add if asked[0].op == "sum" else torch.maximum)(total, other.data[0], out=total)
    return [total]


@torch.no_grad()
def _resume(rounds: Rounds, results: list[Tensor] | None) -> Exchange | None:
    try:
        return next(rounds) if results is None else rounds.send(results)
    except StopIteration:
        return None


def _gradient(elements: int, rank: int) -> Tensor:
    return torch.randn(elements, generator=torch.Generator().manual_seed(rank)) * 1e-3
