"""How long the parts of one rank's step take on a core of this machine. Nothing is sent.

CPU seconds of a thread, medians of several steps: what else the machine does then lengthens them little.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from compressors.base.compressor import Compressor, Layout
from compressors.base.feedback import with_feedback
from compressors.none import Uncompressed
from testbed.core.device.profile import Profile
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.device.median import repeated
from testbed.worker.interfaces.strategy import ExtraWork, WorkerContext
from testbed.worker.interfaces.workload import Workload, trained
from testbed.worker.interfaces.workload_capabilities import preload
from testbed.worker.profile.codec_times import codec_times
from testbed.worker.profile.layer_times import measure_layers
from testbed.worker.profile.machine import this_machine
from testbed.worker.reduction.rehearsal import Echo
from testbed.worker.training import capabilities
from testbed.worker.training.parts import build_parts, first_model, spec_after

Shape = Callable[[torch.nn.Module], None]
"""What a transform does to the layers of a model."""
OnDevice = Callable[[Profile], Profile]
"""Times of layers on a device, from those on a core of this machine."""


def measure(spec: RunSpec) -> Profile:
    """Of one rank's step of `spec` on a core of this machine; also once its transform has changed the model."""
    torch.set_num_threads(1)
    parts = build_parts(spec)
    transform, device = parts.transform, parts.device
    found = _measured(spec, lambda _: None, device.layers)
    if not transform.changes_the_model:
        return found
    if transform.changes_at_once:
        return dataclasses.replace(found, switched=found)
    then = spec_after(spec, transform)
    example = functools.partial(capabilities.example, transform)
    switched = _measured(then, example, lambda layers: device.switched_layers(found, layers))
    return dataclasses.replace(found, switched=switched)


def _measured(spec: RunSpec, shape: Shape, on_device: OnDevice) -> Profile:
    parts = build_parts(spec)
    preload(parts.workload)
    model, _ = first_model(spec, parts)
    shape(model)
    layers, forward_s, backward_s = measure_layers(parts.workload, model, spec, repeated)
    found = Profile(
        workload=part_text(spec.workload),
        compressor=part_text(spec.compressor),
        batch_size=spec.batch_size,
        layers=layers,
        forward_s=forward_s,
        backward_s=backward_s,
        optimizer_s=0.0,
        provenance={
            **this_machine(),
            "strategy": part_text(spec.strategy),
            "workers": spec.workers,
            **({} if spec.epochs is None else {"steps": parts.steps(spec)}),
        },
    )
    with _alone(spec):
        layouts, extra, phases = _strategy_step(spec, on_device(found), shape)
    codec, collectives = codec_times(spec, layouts)
    profile = dataclasses.replace(
        found,
        forward_s=phases["forward"],
        backward_s=phases["backward"],
        optimizer_s=phases["optimizer"],
        other_s=phases["other"],
        codec=codec,
        buckets=tuple(layout.numel for layout in layouts),
        collectives=(*collectives, *extra.collectives),
        work=tuple(dataclasses.replace(piece, seconds=phases[piece.name]) for piece in extra.work),
        factored=extra.factored,
        cycle_steps=parts.strategy.cycle_steps,
        evaluate_cpu_s=_evaluate_cpu_s(parts.workload, model),
    )
    return dataclasses.replace(profile, cpu_step_s=profile.step_s)


def _evaluate_cpu_s(workload: Workload, model: torch.nn.Module) -> float:
    if workload.metric is None:
        return 0.0
    times = []
    for _ in range(2):  # the first one loads what others find loaded
        begin_s = time.thread_time()
        with torch.no_grad():
            workload.evaluate(model)
        times.append(time.thread_time() - begin_s)
    return min(times)


def part_text(part: Part) -> str:
    """A part and its parameters, one way for equal ones."""
    return f"{part.target} {json.dumps(part.params, sort_keys=True)}"


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


class _Adopting(Uncompressed):
    """Sends what it is given, and does to the optimizer what another compressor does."""

    def __init__(self, compressor: Compressor) -> None:
        super().__init__()
        self._compressor = with_feedback(compressor)
        self.traits = dataclasses.replace(self.traits, owns=self._compressor.traits.owns)

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return self._compressor.adopt(optimizer)


def _strategy_step(spec: RunSpec, layers: Profile, shape: Shape) -> tuple[list[Layout], ExtraWork, dict[str, float]]:
    """The layouts that a step reduces, its extra work, and its CPU seconds by phase, as the strategy takes them.

    Nothing is compressed, but the optimizer is the one that the compressor leaves. A strategy that makes its buckets by
    the times of layers has those of the emulated device.
    """
    parts = build_parts(spec)
    model, _ = first_model(spec, parts)
    shape(model)
    clock, comm = PhaseClock(times=ComputeTimes.known(layers, model)), Echo(0, spec.workers, spec.timeout_s)
    comm.clock = clock
    parts.strategy.bind(
        WorkerContext(
            spec=spec,
            workload=parts.workload,
            model=model,
            optimizer=parts.workload.optimizer(trained(model)),
            compressor=_Adopting(parts.compressor),
            comm=comm,
            clock=clock,
        )
    )

    def once() -> dict[str, float]:
        with clock.phase("forward"):
            batch = batch_of(parts.workload, spec)
        with clock.phase("other"):
            parts.strategy.step(batch, 0)
        seconds = clock.take_cpu_s()
        return dict.fromkeys(("forward", "backward", "optimizer", "other"), 0.0) | seconds

    phases = repeated(once)
    return list(capabilities.layouts(parts.strategy)), capabilities.extra_work(parts.strategy), phases


def batch_of(workload: Workload, spec: RunSpec) -> Any:
    return workload.batch(0, rank=0, world_size=spec.workers, batch_size=spec.batch_size, seed=spec.seed)
