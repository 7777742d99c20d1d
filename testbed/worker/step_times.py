"""How long the parts of one rank's step take on a core of this machine. Nothing is sent.

CPU seconds of a thread, medians of several steps: what else the machine does then lengthens them little.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from compressors.base import Compressor, Exchange, Layout, Route
from compressors.feedback import with_feedback
from compressors.none import Uncompressed
from compressors.payload import PayloadError
from testbed.core.errors import InputError
from testbed.core.profile import CodecTimes, Collective, Profile
from testbed.core.spec import Part, RunSpec
from testbed.worker.clock import PhaseClock
from testbed.worker.comm import Communicator, Pending
from testbed.worker.layers import measure_layers
from testbed.worker.machine import this_machine
from testbed.worker.parts import build_parts
from testbed.worker.reducer import Reducer
from testbed.worker.rehearsal import Echo
from testbed.worker.strategy import WorkerContext
from testbed.worker.workload import Workload

_BUDGET_S = 1.5
_LEAST_REPEATS, _MOST_REPEATS = 3, 20


def measure(spec: RunSpec) -> Profile:
    """Of one rank's step of `spec` on a core of this machine."""
    torch.set_num_threads(1)
    parts = build_parts(spec)
    parts.workload.preload()
    model = parts.workload.model(spec.seed)
    layers, _, _ = measure_layers(parts.workload, model, spec, repeated)
    with _alone(spec):
        layouts, phases = _strategy_step(spec)
    codec, collectives = codec_times(spec, layouts)
    profile = Profile(
        workload=part_text(spec.workload),
        compressor=part_text(spec.compressor),
        batch_size=spec.batch_size,
        layers=layers,
        forward_s=phases["forward"],
        backward_s=phases["backward"],
        optimizer_s=phases["optimizer"],
        other_s=phases["other"],
        codec=codec,
        buckets=tuple(layout.numel for layout in layouts),
        collectives=tuple(collectives),
        provenance={**this_machine(), "strategy": part_text(spec.strategy), "workers": spec.workers},
    )
    return dataclasses.replace(profile, cpu_step_s=profile.step_s)


def part_text(part: Part) -> str:
    """A part and its parameters, one way for equal ones."""
    return f"{part.target} {json.dumps(part.params, sort_keys=True)}"


def repeated(once: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Medians, by key, of what `once` gives; its first two answers do not count."""
    found: dict[str, list[float]] = defaultdict(list)
    end_s = time.monotonic() + _BUDGET_S
    for repeat in range(-2, _MOST_REPEATS):
        values = once()
        if repeat >= 0:
            for key, value in values.items():
                found[key].append(value)
        if repeat + 1 >= _LEAST_REPEATS and time.monotonic() > end_s:
            break
    return {key: statistics.median(values) for key, values in found.items()}


@contextlib.contextmanager
def _alone(spec: RunSpec) -> Iterator[None]:
    """A process group of one rank, which sends nothing: torch's own strategies bind to the one there is."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        group = Communicator.connect(
            rank=0, world_size=1, address="", port=0, interface="lo", timeout_s=spec.timeout_s, store=store
        )
        try:
            yield
        finally:
            group.close()


def _strategy_step(spec: RunSpec) -> tuple[list[Layout], dict[str, float]]:
    """The layouts that a step reduces, and its CPU seconds by phase, as the strategy takes them, uncompressed."""
    parts = build_parts(spec)
    model = parts.workload.model(spec.seed)
    clock = PhaseClock()
    parts.strategy.bind(
        WorkerContext(
            spec=spec,
            workload=parts.workload,
            model=model,
            optimizer=parts.workload.optimizer(model.parameters()),
            compressor=Uncompressed(),
            comm=Echo(0, spec.workers, spec.timeout_s),
            clock=clock,
        )
    )

    def once() -> dict[str, float]:
        with clock.phase("forward"):
            batch = batch_of(parts.workload, spec)
        with clock.phase("other"):
            parts.strategy.step(batch, 0)
        seconds = clock.take_cpu_s()
        return {phase: seconds.get(phase, 0.0) for phase in ("forward", "backward", "optimizer", "other")}

    return list(parts.strategy.layouts()), repeated(once)


def batch_of(workload: Workload, spec: RunSpec) -> Any:
    return workload.batch(0, rank=0, world_size=spec.workers, batch_size=spec.batch_size, seed=spec.seed)


class _RecordingClock(PhaseClock):
    """Notes the CPU seconds of each round."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: dict[int, list[tuple[str, float]]] = defaultdict(list)

    def codec(self, name: str, elements: int, round_: int) -> Any:
        return _Noted(self.rounds[elements], name)


class _Noted:
    def __init__(self, rounds: list[tuple[str, float]], name: str) -> None:
        self._rounds, self._name = rounds, name

    def __enter__(self) -> None:
        self._since_s = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._rounds.append((self._name, time.thread_time() - self._since_s))


class _RecordingEcho(Echo):
    """Notes what is asked for."""

    def __init__(self, world_size: int, timeout_s: float) -> None:
        super().__init__(0, world_size, timeout_s)
        self.collectives: list[Collective] = []

    def run(self, exchange: Exchange) -> Pending:
        size = sum(part.nbytes for part in exchange.data)
        self.collectives.append(Collective(kind=exchange.kind, size_bytes=size))
        return super().run(exchange)


def codec_times(spec: RunSpec, layouts: Sequence[Layout]) -> tuple[tuple[CodecTimes, ...], list[Collective]]:
    """Of each size of bucket, and all collectives of a step."""
    by_elements: dict[int, CodecTimes] = {}
    asked: dict[int, list[Collective]] = {}
    for layout in layouts:
        if layout.numel not in by_elements:
            by_elements[layout.numel], asked[layout.numel] = _codec_of(spec, layout)
    codec = tuple(by_elements[elements] for elements in sorted(by_elements))
    return codec, [collective for layout in layouts for collective in asked[layout.numel]]


def _codec_of(spec: RunSpec, layout: Layout) -> tuple[CodecTimes, list[Collective]]:
    compressor: Compressor = with_feedback(build_parts(spec).compressor)
    echo, clock = _RecordingEcho(spec.workers, spec.timeout_s), _RecordingClock()
    reducer = Reducer(compressor, echo, clock, spec.topology, spec.seed)
    numel = even = layout.numel
    whole = layout
    if reducer.context(layout, 0).route is Route.TWO_SHOT and numel > spec.workers:
        # Parts of one size, so that this rank's payload passes for any other's.
        even = numel - numel % spec.workers
        whole = dataclasses.replace(layout, shapes=((even,),))
    gradient = _gradient(even)
    names: list[str] = []

    def once() -> dict[str, float]:
        clock.rounds.clear()
        echo.collectives.clear()
        _reduce(reducer, gradient.clone(), whole)
        names[:] = [phase for phase, _ in clock.rounds[even]]
        return {str(index): seconds for index, (_, seconds) in enumerate(clock.rounds[even])}

    seconds = repeated(once)
    rounds = tuple((name, seconds[str(index)]) for index, name in enumerate(names))
    return CodecTimes(elements=numel, rounds=rounds), list(echo.collectives)


def _reduce(reducer: Reducer, flat: Tensor, layout: Layout) -> None:
    try:
        reducer.start(flat, layout, 0)
        reducer.finish()
    except PayloadError as error:
        raise InputError(f"compressor: {error}; its times cannot be measured without other ranks") from error


def _gradient(elements: int) -> Tensor:
    return torch.randn(elements, generator=torch.Generator().manual_seed(0)) * 1e-3
