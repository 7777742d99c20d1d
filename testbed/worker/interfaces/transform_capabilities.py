"""Capabilities of transforms beyond `Transform`: one that has the methods has the capability, and inherits nothing.

The loop calls them in this order, on every rank:

    begin(model, seed)                  before anything depends on the model, also of models that are measured
    bind                                before the strategy is bound
    attach(model, optimizer)            of each optimizer that takes steps
    rate_factor(step)                   before step `step`: what learning rates are multiplied by
    spared(batch)                       before each step: what of forward it will not do
    plan_after(model, step)             after it, collective: what to change now, on all ranks or on none
    switch(fresh model, plan, step)     then come a new optimizer, `attach`, strategy, compressor, evaluated copy
    profile_after(profile, model)       how long what it has become takes
    kept(model)                         after the last step
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from testbed.core.device.profile import Profile
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.training import ModelChange
from testbed.worker.interfaces.workload import Batch

Plan = Any
"""Argument of `switch`; opaque to the loop."""


@runtime_checkable
class InitialChange(Protocol):
    """Transform that changes the model before the run, or looks whether it could later."""

    def begin(self, model: nn.Module, seed: int) -> ModelChange | None:
        """Change a model that nothing depends on yet, in place: the same on all ranks, which tell each other nothing.

        Args:
            seed: Seed of the run.

        Returns:
            The event for the record; None: nothing has changed.

        Raises:
            InputError: A parameter of the transform is wrong for this model; every error at once.
        """


@runtime_checkable
class ModelSwitch(Protocol):
    """Transform that changes the model during the run.

    Strategies put hooks on modules and parameters, which stay on what a switch leaves in place. Therefore the model
    that is switched should be a new one of the workload's with the parameters of the old one.
    """

    def looks_after(self, step: int) -> bool:
        """Return True if `plan_after` is to be asked after step `step`, counted from 0; the same on all ranks."""

    def plan_after(self, model: nn.Module, step: int) -> Plan | None:
        """Observe the model after step `step`, counted from 0, and return what to change; the same on all ranks.

        Collectives are allowed, in the same steps on every rank. Between two exchanges of replicas parameters differ.
        """

    def switch(self, model: nn.Module, plan: Plan, step: int) -> StepEvent:
        """Change a model that is as after step `step`, in place; return the event for the record.

        Raises:
            CollectiveError: Ranks differ in the result.
        """

    def example(self, model: nn.Module) -> None:
        """Give a model of initial layers those that it is expected to have in the end, before `bind`.

        Its times are then measured.
        """


@runtime_checkable
class Retimed(Protocol):
    """Transform whose changed model does not take time in proportion to its parameters."""

    def profile_after(self, profile: Profile, model: nn.Module) -> Profile:
        """Return the times of a model that it has changed.

        Args:
            profile: Times of the former model; its `switched` has those of the model that `example` makes.
        """


@runtime_checkable
class OptimizerHook(Protocol):
    """Transform that adds to gradients, or observes them; its `adds_to_gradients` is True."""

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Let `optimizer`, whichever takes steps on `model`, see more than the loss's gradients."""


@runtime_checkable
class DecayExempt(Protocol):
    """Transform with parameters that have a decay of their own."""

    def undecayed(self, model: nn.Module) -> list[str]:
        """Return the names of parameters that ordinary weight decay must leave alone."""


@runtime_checkable
class RateChange(Protocol):
    """Transform that changes learning rates; its `adds_to_gradients` is True."""

    def rate_factor(self, step: int) -> float:
        """Return the factor of the learning rate in step `step`, counted from 0."""


@runtime_checkable
class PartialForward(Protocol):
    """Transform by which some layers do not compute some samples."""

    def spared(self, batch: Batch) -> Mapping[str, float]:
        """Return the share of the batch's samples that a layer does not compute in this step, by its name."""


@runtime_checkable
class KeptAsOther(Protocol):
    """Transform whose model is kept in another form than it is trained in."""

    def kept(self, model: nn.Module) -> Mapping[str, Any]:
        """Return the state of a model after the last step, as another run may begin with it."""
