"""What a transform does to optimizers: learning rates that rise again, parameters that do not decay, and those of a
model that goes on in place of another one."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from testbed.worker.interfaces.transform import Transform
from testbed.worker.training import capabilities


class LearningRate:
    """Multiplies those that an optimizer's groups have, by what is told last."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._factor = 1.0

    def set(self, factor: float) -> None:
        """From the next step on; in proportion, so that whoever else changes them is not undone."""
        if factor != self._factor:
            for group in self._optimizer.param_groups:
                group["lr"] *= factor / self._factor
            self._factor = factor


def leave_undecayed(optimizer: torch.optim.Optimizer, model: nn.Module, names: Collection[str]) -> None:
    """Put these parameters of `model` in groups of their own without weight decay, where their groups have any."""
    left = {id(parameter) for name, parameter in model.named_parameters() if name in names}
    for group in list(optimizer.param_groups):
        undecayed = [parameter for parameter in group["params"] if id(parameter) in left]
        if not undecayed or not group.get("weight_decay"):
            continue
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in left]
        settings = {key: value for key, value in group.items() if key != "params"}
        optimizer.add_param_group({**settings, "params": undecayed, "weight_decay": 0.0})


@dataclass(frozen=True)
class Held:
    """What has taken steps on a model that another one is about to replace."""

    parameters: dict[str, nn.Parameter]
    optimizers: list[torch.optim.Optimizer]


class Optimizers:
    """All that take steps on a model, as they are made."""

    def __init__(self, transform: Transform, model: nn.Module) -> None:
        self._transform, self._model = transform, model
        # some strategies make one for each client, which is not to outlive its round
        self._made: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self.factor = 1.0
        """What the learning rates of an optimizer that is made now are multiplied by, as those of a client's round."""

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Have a new one do as the transform says, at the learning rate of the step."""
        LearningRate(optimizer).set(self.factor)
        leave_undecayed(optimizer, self._model, capabilities.undecayed(self._transform, self._model))
        capabilities.attach(self._transform, self._model, optimizer)
        self._made.add(optimizer)
        optimizer.register_step_pre_hook(lambda stepping, *_: self._stepped.add(stepping))

    def held(self) -> Held:
        """Those that take steps, to be kept until they are carried on: of a strategy that has some of its own the run's
        never does, and what it was given at an earlier change is old."""
        return Held(dict(self._model.named_parameters()), list(self._stepped))

    def carry(self, held: Held) -> None:
        """Where parameters are still those of the workload's model, go on with what the optimizers of another one have
        of those of the same name."""
        if not self._transform.keeps_parameters:
            return
        named = self._model.named_parameters()
        origin = {parameter: held.parameters[name] for name, parameter in named if name in held.parameters}
        for new in self._made:
            for old in held.optimizers:
                carry_state(old, new, origin)


def carry_state(
    old: torch.optim.Optimizer, new: torch.optim.Optimizer, origin: Mapping[nn.Parameter, nn.Parameter]
) -> int:
    """Give parameters of `new` what `old` keeps of those that they were: momenta, counts of steps.

    Args:
        origin: of parameters of `new`, those of `old`; others begin anew, as do those that `old` has not stepped yet.

    Returns:
        How many parameters go on with something.

    Raises:
        ValueError: the two are of different kinds, or a parameter has another shape than it had.
    """
    if type(old) is not type(new):
        raise ValueError(f"{type(new).__name__} cannot go on with what {type(old).__name__} keeps")
    carried = 0
    for group in new.param_groups:
        for parameter in group["params"]:
            before = origin.get(parameter)
            if before is None or not old.state.get(before):
                continue
            if before.shape != parameter.shape:
                raise ValueError(f"a parameter of shape {list(before.shape)} cannot go on as {list(parameter.shape)}")
            new.state[parameter] = copy.deepcopy(old.state[before])
            carried += 1
    return carried
