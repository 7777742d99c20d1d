"""What a transform is: it changes the model while it is trained. The loop builds anew what hangs on the model.

In the order in which the loop calls it, on every rank:

    begin(model, seed)                  before anything hangs on the model, also of models that are measured
    bind                                before the strategy is bound
    attach(model, optimizer)            of each optimizer that takes steps
    rate_factor(step)                   before step `step`: what learning rates are multiplied by
    plan_after(model, step)             after it, collective: what to change now, on all ranks or on none
    switch(fresh model, plan, step)     then come a new optimizer, `attach`, strategy, compressor, evaluated copy
    profile_after(profile, model)       how long what it has become takes
    spared(batch)                       before each step: what of forward it will not do
    take_notes                          after it

Strategies put hooks on modules and parameters, which stay on what a switch leaves in place. Therefore the model that is
switched should be a new one of the workload's with the parameters of the old one.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from testbed.core.declaration import Declared
from testbed.core.device.profile import LayerTimes, Profile
from testbed.worker.communication.communicator import Communicator
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.model.layers import layer_sizes

# Times of a model that has changed, from those of the model that it was expected to become.


def fitted(profile: Profile, parameters: Mapping[str, int]) -> Profile:
    """Of a model with these layers: those of `profile.switched` in proportion to their parameters, as the factors of a
    weight take it by their rank; those that did not change after all as before.

    Args:
        profile: with `switched`.
        parameters: elements of each layer of the model as it is, in order.

    Raises:
        ValueError: a layer is in neither.
    """
    expected = profile.switched
    if expected is None:
        raise ValueError("the profile has no times of a model that has changed")
    before, after = ({layer.name: layer for layer in one.layers} for one in (profile, expected))
    layers = tuple(_fitted(name, count, before, after) for name, count in parameters.items())
    total = sum(parameters.values()) / (sum(layer.parameters for layer in expected.layers) or 1)
    return dataclasses.replace(
        expected,
        layers=layers,
        forward_s=expected.forward_s + _sum("forward_s", layers) - _sum("forward_s", expected.layers),
        backward_s=expected.backward_s + _sum("backward_s", layers) - _sum("backward_s", expected.layers),
        optimizer_s=expected.optimizer_s * total,
    )


def _fitted(name: str, count: int, before: Mapping[str, LayerTimes], after: Mapping[str, LayerTimes]) -> LayerTimes:
    layer = after.get(name, before.get(name))
    if layer is None:
        raise ValueError(f"layer {name}: the profile has no times of it")
    ratio = count / layer.parameters if layer.parameters else 1.0
    return dataclasses.replace(
        layer,
        parameters=count,
        forward_s=layer.forward_s * ratio,
        backward_s=layer.backward_s * ratio,
        forward_flop=layer.forward_flop * ratio,
    )


def _sum(key: str, layers: tuple[LayerTimes, ...]) -> float:
    return float(sum(getattr(layer, key) for layer in layers))


Plan = Any
"""What `switch` takes; opaque to the loop."""


@dataclass(frozen=True, kw_only=True)
class TransformContext:
    """All a transform may use besides the model that it is given."""

    model: nn.Module
    """With initial parameters, and before anybody has put hooks on it."""
    comm: Communicator
    steps: int
    """Of the whole run."""
    epoch_steps: int | None = None
    """Of one epoch of the data; None: the strategy has none."""
    loss: Callable[[nn.Module], Tensor]
    """Of some batch, by a copy of the model."""
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Stands around what other ranks have to do first."""


class Transform(Declared, ABC):
    """Constructors take keyword-only parameters and raise ValueError for each bad one. `bind` comes once, first."""

    changes_the_model: ClassVar[bool] = True
    """Whether it ever does."""
    changes_at_once: ClassVar[bool] = False
    """Whether it does so in `begin`, and never again."""
    keeps_parameters: ClassVar[bool] = False
    """Whether all parameters stay those of the workload's model, so that an optimizer goes on with what it has."""
    compresses_after: bool = True
    """Whether the run's compressor is used for the changed model too; otherwise it is sent as it is."""

    def faults(self, steps: int) -> Iterator[str]:
        """What is wrong in a run of so many steps, one line each."""
        yield from ()

    def misfits(self, workload: Workload) -> Iterator[str]:
        """Why it does not go with this workload, one line each."""
        yield from ()

    def begin(self, model: nn.Module, seed: int) -> dict[str, Any] | None:
        """Change a model that nothing hangs on yet, in place: the same on all ranks, which tell each other nothing.

        Args:
            seed: of the run.

        Returns:
            The event for the record; None: nothing has changed.

        Raises:
            InputError: with every fault of the transform's parameters for this model.
        """
        return None

    def bind(self, context: TransformContext) -> None:
        """Take the parts of this run. Collectives are allowed; all ranks bind at once."""

    @property
    def adds_to_gradients(self) -> bool:
        """Whether it needs the optimizer to be the workload's own: it changes gradients or learning rates, or goes by
        gradients."""
        return False

    def example(self, model: nn.Module) -> None:
        """Give a model of initial layers those that it is expected to have in the end, for its times to be measured;
        before `bind`."""
        raise NotImplementedError(f"{type(self).__name__} changes no model")

    def looks_after(self, step: int) -> bool:
        """Whether `plan_after` is to be asked after this step, counted from 0; the same on all ranks."""
        return False

    @abstractmethod
    def plan_after(self, model: nn.Module, step: int) -> Plan | None:
        """Observe the model after step `step`, counted from 0, and say what to change; the same on all ranks.

        Collectives are allowed, in the same steps on every rank. Between two exchanges of replicas parameters differ.
        """

    def switch(self, model: nn.Module, plan: Plan, step: int) -> dict[str, Any]:
        """Change a model that is as after step `step`, in place; return the event for the record.

        Raises:
            CollectiveError: ranks differ in what came of it.
        """
        raise NotImplementedError(f"{type(self).__name__} plans no switch")

    def profile_after(self, profile: Profile, model: nn.Module) -> Profile:
        """Times of a model that it has changed.

        Args:
            profile: with `switched`, of the one that `example` makes.
        """
        return fitted(profile, layer_sizes(model))

    def spared(self, batch: Batch) -> Mapping[str, float]:
        """What share of the batch's samples layers will not see in this step, by name; of others all are seen."""
        return {}

    def take_notes(self) -> list[dict[str, Any]]:
        """Events for the record since the last call, which comes after every step."""
        return []

    def kept(self, model: nn.Module) -> Mapping[str, Any]:
        """The state of a model after the last step, as another run may begin with it."""
        return model.state_dict()

    def rate_factor(self, step: int) -> float:
        """Of the learning rate in step `step`, counted from 0."""
        return 1.0

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Add to gradients what `optimizer` is to see beside the loss's."""

    def undecayed(self, model: nn.Module) -> list[str]:
        """Parameters by name that ordinary weight decay must leave alone."""
        return []
