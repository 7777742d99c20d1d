"""Compare the phases and gradients of paced workers with those of a measured accelerator.

The largest batch of each model in each precision. Most points pace one worker without a network, each gradient a bucket
of its own, and note when each is handed over; medians of several steps are compared. Some are whole runs, of which
phases are compared. What a phase takes too long is the next one's, so that the optimizer has what is late in a step.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform
from testbed.core.device.profile import Profile
from testbed.core.device.timelines.timeline import Timeline
from testbed.core.device.timelines.timeline_library import MEASURED_PRECISIONS, batch_sizes, measured, models
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.worker.device import clock as clock_module
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Batch, trained
from testbed.worker.profile.layer_times import measure_layers
from testbed.worker.profile.step_times import batch_of, part_text
from testbed.worker.reduction.buckets import Bucket
from testbed.worker.reduction.rehearsal import Echo
from testbed.worker.strategies.ddp import DDP
from testbed.worker.training.parts import build_parts

ACCELERATOR = "h200"
EMULATED = (("resnet50", "tf32"), ("bert-base", "tf32"), ("gpt2-xl", "tf32"), ("vit-b", "bf16"))
"""Models of the whole runs, with their precisions."""
PHASES = ("forward", "backward", "optimizer")
LATE_S = 0.005
"""Gradients that are ready earlier are not compared: a sleeping process does not wake up so exactly."""
MIN_PHASE_S = 0.001
"""Shorter phases are not compared: they are timed by when a sleeping process wakes up, not by their device."""
_SCALES = {"gpt2-xl": 400, "gpt2-medium": 100, "bert-large": 100, "vit-l": 100}
_SCALE = 20
"""Factors by which tensors are smaller, so that copying them takes little of the time that is paced."""
_BUCKET_SIZES = {"gpt2-xl": "128 MiB"}
"""Sizes in whole runs: the time to hand over 1,500 buckets would count as the optimizer's."""
_STEPS, _RUN_STEPS = 4, {"gpt2-xl": 3}
_MIN_DILATION = {"clock": 4.0, "run": 36.0}
_STEP_WALL_S = {"clock": 6.0, "run": 3.0}
"""About as long as a step lasts here, so that a sleeper's waking takes little of it."""
_PHASE_WALL_S = 0.08
"""At least as long as a phase that is compared lasts here: what a step is late by, up to 1 ms, is its optimizer's."""
_WORKERS, _RUN_S = 2, 90


def points(*, quick: bool) -> list[Point]:
    emulated = [Point({"model": m, "precision": p, "where": "run"}, _RUN_S) for m, p in EMULATED]
    if quick:
        return [Point({"model": "resnet50", "precision": "tf32", "where": "clock"}, 30)]
    clocks = [
        Point({"model": model, "precision": precision, "where": "clock"}, 40)
        for model in models(ACCELERATOR)
        for precision in MEASURED_PRECISIONS
        if batch_sizes(ACCELERATOR, model, precision)
    ]
    return [*clocks, *emulated]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs()


def measure(model: str, precision: str, where: str) -> dict[str, Any]:
    timeline = measured(ACCELERATOR, model, precision, max(batch_sizes(ACCELERATOR, model, precision)))
    scale = _SCALES.get(model, _SCALE)
    overrides = [
        *("workload=replay", f"workload.model={model}", f"workload.scale={scale}"),
        *(f"batch_size={timeline.batch_size}", f"device={ACCELERATOR}", f"device.precision={precision}"),
        *("topo=lan", "topo.lan_rate='32 Gbit/s'", f"workers={_WORKERS}", "strategy=ddp"),
    ]
    wanted = {phase: getattr(timeline.phases_s, phase) for phase in PHASES}
    shortest_s = min(seconds for seconds in wanted.values() if seconds > MIN_PHASE_S)
    step_dilation, phase_dilation = _STEP_WALL_S[where] / timeline.phases_s.step_s, _PHASE_WALL_S / shortest_s
    dilation = round(max(_MIN_DILATION[where], step_dilation, phase_dilation if where == "clock" else 0.0))
    sized = [f"strategy.bucket_size='{size}'" for size in (_BUCKET_SIZES.get(model),) if size]
    steps = f"steps={_RUN_STEPS.get(model, 8)}"
    found = _run([*overrides, *sized, steps], dilation) if where == "run" else _clock(overrides, timeline, dilation)
    return {
        "batch_size": timeline.batch_size,
        "scale": scale,
        "host_limited": timeline.host_limited,
        "hooks": timeline.hooked_phases_s.step_s / timeline.phases_s.step_s,
        "wanted": wanted,
        **found,
    }


def _run(overrides: list[str], dilation: float) -> dict[str, Any]:
    run = perform([*overrides, f"dilation={dilation:g}", "evaluate_every=1000"])
    return {**run.facts(), "measured": {phase: run.phase_s(phase) for phase in PHASES}}


def _clock(overrides: list[str], timeline: Timeline, dilation: float) -> dict[str, Any]:
    spec = resolve([*overrides, "dilation=1"]).spec
    strategy, clock, shapes = paced(spec, dilation)
    batch, phases, ready_s = batch_of(build_parts(spec).workload, spec), list[dict[str, float]](), list[list[float]]()
    for step in range(_STEPS + 1):
        with clock.phase("optimizer", clock.times.other_s):  # as the training loop does it
            ready_s.append(strategy.ready_s(batch, step))
        phases.append(clock.take())
    return {
        "dilation": dilation,
        "measured": {phase: median(one.get(phase, 0.0) for one in phases[1:]) for phase in PHASES},
        **against(timeline, shapes, [median(times) for times in zip(*ready_s[1:], strict=True)]),
    }


def paced(spec: RunSpec, dilation: float) -> tuple[Watched, PhaseClock, list[tuple[int, ...]]]:
    """Return one paced worker that sends nothing, its clock, and the shapes of its gradients.

    Gradients are in the order of backward.
    """
    parts = build_parts(spec)
    model = parts.workload.model(spec.seed)
    layers, _, _ = measure_layers(parts.workload, model, spec, lambda once: once())
    cpu = Profile(
        workload=part_text(spec.workload),
        compressor="",
        batch_size=spec.batch_size,
        layers=layers,
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
    )
    clock = _BackwardClock(dilation, ComputeTimes(parts.device.profile(cpu), model))
    comm = Echo(0, 1, spec.timeout_s)
    comm.clock = clock
    strategy = Watched(clock)
    strategy.bind(
        WorkerContext(
            spec=replace(spec, strategy=replace(spec.strategy, params={})),
            workload=parts.workload,
            model=model,
            optimizer=parts.workload.optimizer(trained(model)),
            compressor=parts.compressor,
            comm=comm,
            clock=clock,
        )
    )
    return strategy, clock, [tensor.shape for layer in reversed(layers) for tensor in reversed(layer.tensors)]


def against(timeline: Timeline, shapes: list[tuple[int, ...]], ready_s: list[float]) -> dict[str, Any]:
    """Return how far gradients are from the measurement, of those that are ready late enough."""
    waiting = defaultdict[tuple[int, ...], deque[tuple[str, float]]](deque)
    for name, shape, at_s in timeline.without_hooks().gradient_ready_s:
        waiting[tuple(sorted(shape))].append((name, at_s))
    errors = dict[str, float]()
    for shape, at_s in zip(shapes, ready_s, strict=True):
        name, wanted_s = waiting[tuple(sorted(shape))].popleft()
        if wanted_s > LATE_S:
            errors[name] = at_s / wanted_s - 1
    worst = max(errors, key=lambda name: abs(errors[name]), default=None)
    return {
        "gradients": len(errors),
        "worst_gradient": worst,
        "worst_error": None if worst is None else errors[worst],
        "beyond": sum(abs(error) > 0.02 for error in errors.values()),
    }


class _BackwardClock(PhaseClock):
    """Clock that notes when backward was due to begin: what is done between two phases takes none of their time."""

    backward_s = 0.0

    def phase(self, name: str, seconds: float | None = None, *, waits: bool = False) -> AbstractContextManager[None]:
        if name == "backward":
            self.backward_s = self._due_s
        return super().phase(name, seconds, waits=waits)


class Watched(DDP):
    """DDP that notes when each gradient is handed over, and sends none."""

    def __init__(self, clock: _BackwardClock) -> None:
        super().__init__(bucket_size="1 B")
        self._clock, self._ready_s = clock, list[float]()

    def ready_s(self, batch: Batch, step: int) -> list[float]:
        """Take a step; return the emulated seconds from the beginning of backward until each gradient was ready."""
        self._ready_s.clear()
        self._clock.restart(clock_module.time.monotonic())
        self.step(batch, step)
        return list(self._ready_s)

    def _start(self, bucket: Bucket) -> None:
        now_s = clock_module.time.monotonic()
        self._ready_s.append((now_s - self._clock.backward_s) / self._clock.dilation)

    def _update(self) -> None:
        self._take_step()
