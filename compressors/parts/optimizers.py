"""Optimizers for compressors that find the direction of a step by themselves."""

from __future__ import annotations

import torch


def plain_sgd(optimizer: torch.optim.Optimizer, learning_rate: float | None) -> torch.optim.SGD:
    """Return SGD without momentum over the same groups of parameters.

    Their weight decay stays, and is thus decoupled from the direction. Whenever the learning rate of a group of
    `optimizer` changes, as by a schedule, that of the new one changes in proportion.

    Args:
        learning_rate: Learning rate of all groups; None keeps that of each.
    """
    groups = [
        {
            "params": group["params"],
            "lr": group["lr"] if learning_rate is None else learning_rate,
            "weight_decay": group.get("weight_decay", 0.0),
        }
        for group in optimizer.param_groups
    ]
    plain = torch.optim.SGD(groups)
    initial = [(own["lr"], given["lr"]) for own, given in zip(plain.param_groups, optimizer.param_groups, strict=True)]

    def follow(*_: object) -> None:
        for own, given, (rate, first) in zip(plain.param_groups, optimizer.param_groups, initial, strict=True):
            own["lr"] = rate * (given["lr"] / first) if first else rate

    plain.register_step_pre_hook(follow)
    return plain
