"""Clipping of gradients by their norm, as a part of a workload's optimizer."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn


@runtime_checkable
class Clipped(Protocol):
    """Workload whose optimizer may clip the norm of all gradients together, which takes all of them at once."""

    clip_norm: float | None
    """Largest norm of a step's gradients; None: any."""


def clipped(optimizer: torch.optim.Optimizer, norm: float | None) -> torch.optim.Optimizer:
    """Return `optimizer`, each of whose steps now first scales its gradients to a norm of `norm` at most; None: any."""
    if norm is not None:

        def clip(stepping: torch.optim.Optimizer, *_: Any) -> None:
            nn.utils.clip_grad_norm_([p for group in stepping.param_groups for p in group["params"]], norm)

        optimizer.register_step_pre_hook(clip)
    return optimizer


def clipping_fault(strategy: str, workload: object) -> str | None:
    """Return why a strategy that updates parts of a model apart cannot train `workload`, None if it can."""
    if not isinstance(workload, Clipped) or workload.clip_norm is None:
        return None
    return (
        f"strategy={strategy} updates parts of the model apart, and {type(workload).__name__} clips the norm of all"
        " gradients together; use workload.clip_norm=null, or strategy=ddp"
    )
