"""The model of a rank and all that depends on it: made again when a transform changes the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from torch import nn

from testbed.core.device.profile import Profile
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.training import DrawnChanges
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.interfaces.schedule import rate_factor
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.transform_capabilities import ModelSwitch, Plan
from testbed.worker.interfaces.workload import trained
from testbed.worker.interfaces.workload_capabilities import DrawnTraining
from testbed.worker.training import capabilities
from testbed.worker.training.optimizers import LearningRate, Optimizers
from testbed.worker.training.parts import Parts, changed_parts


class Binding:
    """A model, the parts that train it, its optimizers, and the strategy's context."""

    def __init__(
        self,
        spec: RunSpec,
        parts: Parts,
        model: nn.Module,
        comm: Communicator,
        clock: PhaseClock,
        record: Callable[[StepEvent], None],
        start_step: int = 0,
    ) -> None:
        """Make the optimizers and the strategy's context.

        Args:
            start_step: Number of steps of the run that were taken with another model.
        """
        self.parts, self.model, self.start_step = parts, model, start_step
        if not parts.workload.computes:
            record = _without_losses(record)
        if parts.strategy.exchanges_models and isinstance(parts.workload, DrawnTraining):
            texture = parts.workload.own_parameters(model, spec.seed)
            if comm.rank == 0:
                record(DrawnChanges(texture=texture, assumed=parts.strategy.varying_codecs(parts.compressor)))
        self.optimizers = Optimizers(parts.transform, model)
        optimizer = parts.workload.optimizer(trained(model))
        self.optimizers.prepare(optimizer)
        self._rate = LearningRate(optimizer)
        self.context = WorkerContext(
            spec=spec,
            workload=parts.workload,
            model=model,
            optimizer=optimizer,
            compressor=parts.compressor,
            comm=comm,
            clock=clock,
            prepare=self.optimizers.prepare,
            start_step=start_step,
            record=record,
        )

    def set_rate(self, step: int, steps: int) -> None:
        """Set the learning rates of `step` of a run of `steps`, by the workload's schedule and the transform.

        Optimizers that are made later in the step begin at them too.
        """
        factor = rate_factor(self.parts.workload, step, steps) * capabilities.rate_factor(self.parts.transform, step)
        self._rate.set(factor)
        self.optimizers.factor = factor

    def changed(
        self, transform: ModelSwitch, plan: Plan, step: int, profile: Profile | None
    ) -> tuple[Binding, StepEvent]:
        """Change a copy of the model after step `step`, whose strategy has finished.

        Args:
            profile: Times of the model before; with `switched`, the clock gets those of the new one.

        Returns:
            The binding of the new model, with a fresh strategy and compressor that are not bound yet, and the event.
        """
        context, parts = self.context, self.parts
        model = parts.workload.model(context.spec.seed)  # hooks of the old one stay behind
        model.load_state_dict(self.model.state_dict())
        event = transform.switch(model, plan, step)
        if profile is not None and profile.switched is not None:
            after = capabilities.profile_after(parts.transform, profile, model)
            context.clock.times = ComputeTimes(after, model)
        fresh = changed_parts(context.spec, parts.transform)
        parts = dataclasses.replace(parts, strategy=fresh.strategy, compressor=fresh.compressor)
        common = context.spec, parts, model, context.comm, context.clock, context.record
        return Binding(*common, start_step=step + 1), event


def _without_losses(record: Callable[[StepEvent], None]) -> Callable[[StepEvent], None]:
    """Return a function that records events without training losses, for a workload whose losses mean nothing."""

    def recorded(event: StepEvent) -> None:
        record(dataclasses.replace(event, train_loss=None) if hasattr(event, "train_loss") else event)  # type: ignore[call-arg]

    return recorded
