"""The one training loop: order of data, timing, records, stopping."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from compressors.base.compressor import Compressor
from testbed.core.device.profile import Profile
from testbed.core.errors import RunError
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.run import PHASES, Done, Model, PhaseTimes, Start, Step, Warm
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.host import Host
from testbed.worker.device.accelerator import to_device
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.device.paces import Paces
from testbed.worker.device.run_queue import RunQueueDelay
from testbed.worker.interfaces.strategy import Agreement, WorkerContext
from testbed.worker.interfaces.transform import TransformContext
from testbed.worker.interfaces.transform_capabilities import ModelSwitch, Plan
from testbed.worker.interfaces.workload import Batch, parameters_crc32, trained
from testbed.worker.training import capabilities
from testbed.worker.training.averaging import finish
from testbed.worker.training.binding import Binding
from testbed.worker.training.evaluation import Evaluations
from testbed.worker.training.parts import Parts, first_model
from testbed.worker.training.warm_up import WarmUp

Emit = Callable[[dict[str, Any]], None]


class Training:
    """One rank's part of a run."""

    def __init__(
        self, spec: RunSpec, parts: Parts, comm: Communicator, emit: Emit, profile: Profile | None = None
    ) -> None:
        """
        Args:
            emit: is called from two threads.
            profile: how long phases last; without, as long as they take here.
        """
        self.spec, self.comm, self.emit = spec, comm, emit
        model, self._change = first_model(spec, parts)
        model.to(comm.accelerator.device)
        self._profile = profile
        settle = None if comm.accelerator.is_processor else comm.accelerator.settle
        self.clock = PhaseClock(spec.dilation, ComputeTimes(profile, model), settle, comm.accelerator.meter)
        comm.clock = self.clock
        comm.host = Host.of(spec, lambda: self.clock.dilation)
        self.paces = Paces()
        self._queueing = RunQueueDelay()
        comm.stopwatch.began = self._queueing.begin
        self._sent_bytes = 0
        self.steps = parts.steps(spec)
        self._events: list[StepEvent] = []
        """Events that strategy and transform have recorded in this step."""
        self.bound = Binding(spec, parts, model, comm, self.clock, self._events.append)
        self._evaluations = self._new_evaluations()
        self._earlier_evaluations: list[Evaluations | None] = []
        """Of the model before it changed."""

    @property
    def parts(self) -> Parts:
        return self.bound.parts

    @property
    def model(self) -> nn.Module:
        return self.bound.model

    @property
    def context(self) -> WorkerContext:
        return self.bound.context

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in trained(self.model))

    @property
    def outlived(self) -> list[int]:
        """Ranks that the others go on without. A model that changes needs all of them when it does."""
        if self.parts.transform.changes_the_model:
            return []
        return [r for r in range(self.comm.world_size) if capabilities.tolerates_loss_of(self.parts.strategy, r)]

    def bind(self) -> None:
        """Have transform and strategy take their parts; all ranks at once, but for one that comes back."""
        workload, size, seed = self.parts.workload, self.spec.batch_size, self.spec.seed

        def loss(model: nn.Module) -> Tensor:
            return workload.loss(model, workload.batch(0, rank=0, world_size=1, batch_size=size, seed=seed))

        self.parts.transform.bind(
            TransformContext(
                model=self.model,
                comm=self.comm,
                steps=self.steps,
                epoch_steps=self.parts.epoch_steps(self.spec),
                loss=loss,
                record=self._events.append,
            )
        )
        self.parts.strategy.bind(self.context)
        if self._change is not None and self.comm.rank == 0:
            self._tell(-1, 0.0, self._change)

    def describe(self) -> Model:
        """Return the event that describes model and strategy, which is bound by then."""
        metric = self.parts.workload.metric
        dense = self.parameters if self._change is None else self._change.parameters_before
        ring_bytes, strategy = 2 * (self.comm.world_size - 1) * 4 * dense, self.parts.strategy
        return Model(
            rank=self.comm.rank,
            parameters=self.parameters,
            dense_bytes_step=capabilities.dense_bytes_step(strategy, ring_bytes),
            metric_name=None if metric is None else metric.name,
            metric_target=None if metric is None else metric.target,
            higher_is_better=None if metric is None else metric.higher_is_better,
            routes=capabilities.routes(strategy),
            collectives=capabilities.collectives(strategy),
            outlived=self.outlived,
        )

    def warm_up(
        self, busy: threading.Event, rest: threading.Event, scratch: Compressor, turn: AbstractContextManager[None]
    ) -> None:
        """Do everything once, say so, and compute from `busy` until `rest`; see `WarmUp`."""
        warm_up = WarmUp(self.parts.workload, self.model, self.spec, self.comm.rank, scratch)
        if self._evaluations is not None and self.spec.evaluate_every < self.steps:
            self._evaluations.rehearse()  # after the last step nothing is disturbed by what it loads
        with turn:
            warm_up.rehearse()
        self.emit(Warm(rank=self.comm.rank).to_json())
        warm_up.work(busy, rest)

    def run(self, t0_s: float) -> Done:
        """Train from `t0_s` (CLOCK_MONOTONIC) to the end; return the last event, once all others have been sent."""
        time.sleep(max(0.0, t0_s - time.monotonic()))
        first = capabilities.first_step(self.parts.strategy)
        begin_s = time.monotonic() if self.comm.is_back else t0_s  # it is not late by what it has missed
        self._restart(begin_s)
        t_s = self._since_s(t0_s)
        late_s = self._since_s(begin_s) if self.comm.is_back else t_s
        self.emit(Start(t_s=t_s, rank=self.comm.rank, late_s=late_s).to_json())
        if self.comm.is_back and self._evaluations is not None and self._is_due(first - 1):
            self._evaluations.start(first, t_s)  # that it was told before is not sure
        for step in range(first, self.steps):
            self.clock.dilation = self.paces.at(step + 1) or self.clock.dilation
            self._step(step, t0_s)
        finishing_s = time.monotonic()
        finish(self.parts.strategy, self.context)
        self._tell_recorded(self.steps - 1, self._since_s(t0_s))
        ends_apart = self.parts.strategy.agreement is Agreement.NONE
        done = Done(
            t_s=self._since_s(t0_s),
            rank=self.comm.rank,
            steps=self.steps,
            finish_s=self._since_s(finishing_s),
            finish_payload_bytes=self._take_sent_bytes(),
            parameters_crc32=None if ends_apart else parameters_crc32(self.model),
        )
        for evaluations in (*self._earlier_evaluations, self._evaluations):
            if evaluations is not None:
                evaluations.finish(self.comm.timeout_s)
        return done

    def _since_s(self, then_s: float) -> float:
        """Emulated seconds since `then_s`."""
        return (time.monotonic() - then_s) / self.clock.dilation

    def _step(self, step: int, t0_s: float) -> None:
        self.comm.step, started_s = step + 1, time.monotonic()
        is_last, due = step + 1 == self.steps, self._is_due(step)
        part = capabilities.part(self.parts.strategy, self.comm.rank, self.comm.world_size)
        # Paced, drawing a batch is part of what the strategy's forward is given.
        with self.clock.phase("forward", None if self.clock.times.forward_s is None else 0.0):
            batch = None if part is None or self.parts.strategy.draws_batches else self._batch(step, *part)
        transform = self.parts.transform
        self.bound.set_rate(step, self.steps)
        self.clock.times.spare(capabilities.spared(transform, batch))
        # What the strategy does outside the phases it names falls to this one, so that phases add up to the step.
        with self.clock.phase("optimizer", self.clock.times.other_s):
            stats = self.parts.strategy.step(batch, step - self.bound.start_step)
            if due:
                capabilities.sync_parameters(self.parts.strategy)
            changed = None
            if isinstance(transform, ModelSwitch) and transform.looks_after(step):
                changed = self._transform(transform, step)
        ended_s = time.monotonic()
        if stats.loss is not None and not math.isfinite(stats.loss):
            what = f"the loss of step {step + 1} is {stats.loss}"
            raise RunError(f"rank {self.comm.rank}: {what}; the training has diverged")
        if is_last:
            self.clock.end_stretch()
        t_s = (ended_s - t0_s) / self.clock.dilation
        drawn = 0 if part is None else self.spec.batch_size
        self._tell(
            step,
            t_s,
            Step(
                loss=stats.loss if self.parts.workload.computes else None,
                step_s=(ended_s - started_s) / self.clock.dilation,
                samples=drawn if stats.samples is None else stats.samples,
                **self._take_times(),
                payload_bytes=self._take_sent_bytes(),
            ),
        )
        if changed is not None and self.comm.rank == 0:
            self._tell(step, t_s, changed)
        self._after(step, t_s, is_due=due)

    def _restart(self, begin_s: float) -> None:
        """Forget times and bytes of what was before `begin_s` (CLOCK_MONOTONIC)."""
        self.clock.restart(begin_s)
        self._queueing.take_s()
        self.comm.stopwatch.take_s()
        self._sent_bytes = self.comm.payload_bytes

    def _take_times(self) -> dict[str, Any]:
        """Return the times of a `Step` since the last call, in emulated seconds."""
        phase_s = dict.fromkeys(PHASES, 0.0)
        for name, seconds in self.clock.take().items():
            phase_s[name if name in phase_s else "optimizer"] += seconds  # a strategy's own work leads to the update
        phase_s["communicate"] = self.comm.stopwatch.take_s() / self.clock.dilation
        return {
            "phase_s": PhaseTimes(**phase_s),
            "cpu_s": sum(self.clock.take_cpu_s().values()),
            **self.clock.take_lateness(),
            "queued_s": self._queueing.take_s(under_way=self.comm.stopwatch.is_running) / self.clock.dilation,
        }

    def _take_sent_bytes(self) -> int:
        """Return the bytes sent since the last call: what a thread sends between two steps belongs to the second."""
        before, self._sent_bytes = self._sent_bytes, self.comm.payload_bytes
        return self._sent_bytes - before

    def _batch(self, step: int, place: int, parts: int) -> Batch:
        """Of `step`, that of one in `place` of so many parts, where this rank computes."""
        size, seed = self.spec.batch_size, self.spec.seed
        drawn = self.parts.workload.batch(step, rank=place, world_size=parts, batch_size=size, seed=seed)
        return to_device(drawn, self.comm.accelerator.device)

    def _is_due(self, step: int) -> bool:
        """Whether the model is evaluated after `step`."""
        every = self.spec.evaluate_every
        return step + 1 == self.steps or (
            self.parts.workload.metric is not None and step >= 0 and (step + 1) % every == 0
        )

    def _after(self, step: int, t_s: float, *, is_due: bool) -> None:
        """What follows from a step that ended at `t_s`."""
        self._tell_recorded(step, t_s)
        if self._evaluations is not None and is_due:
            self._evaluations.start(step + 1, t_s)

    def _tell_recorded(self, step: int, t_s: float) -> None:
        events = sorted(self._events, key=lambda event: event.order_in_step)
        self._events.clear()
        for event in events:
            self._tell(step, t_s, event)

    def _tell(self, step: int, t_s: float, event: StepEvent) -> None:
        self.emit(event.stamped(t_s, self.comm.rank, step + 1))

    def _transform(self, transform: ModelSwitch, step: int) -> StepEvent | None:
        """Change the model after `step`, if its transform says so, and build anew what hangs on it; what came of it.

        It takes the time that it takes this processor.
        """
        capabilities.sync_parameters(self.parts.strategy)
        with self.clock.phase("transform"):
            plan = transform.plan_after(self.model, step)
            return None if plan is None else self._switch(transform, plan, step)

    def _switch(self, transform: ModelSwitch, plan: Plan, step: int) -> StepEvent:
        held = self.bound.optimizers.held()
        finish(self.parts.strategy, self.context)
        capabilities.hand_over(self.parts.strategy)
        self.bound, event = self.bound.changed(transform, plan, step, self._profile)
        self._earlier_evaluations.append(self._evaluations)
        self._evaluations = self._new_evaluations()  # a copy that no strategy has put hooks on
        self.clock.mark()
        with self.clock.phase(WAITING):  # all ranks bind at once
            self.parts.strategy.bind(self.context)
        self.bound.optimizers.carry(held)
        return event

    def _new_evaluations(self) -> Evaluations | None:
        workload = self.parts.workload
        if self.comm.rank != 0 or workload.metric is None:
            return None
        return Evaluations(workload, self.model, self.emit)
