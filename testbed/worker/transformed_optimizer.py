"""What a transform does to optimizers: learning rates that rise again, parameters that do not decay."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn


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
