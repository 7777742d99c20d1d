"""A model small enough to be factorised in no time, and what stands around it, for tests of transforms."""

from __future__ import annotations

import torch
from torch import nn

from testbed.worker.communication.communicator import Communicator
from testbed.worker.interfaces.transform import TransformContext


def context(model: nn.Module, steps: int = 40, comm: Communicator | None = None) -> TransformContext:
    return TransformContext(
        model=model,
        comm=comm or Communicator(0, 1, 10.0),
        steps=steps,
        loss=lambda copied: copied(torch.ones(4, 24)).sum(),
    )


def small() -> nn.Sequential:
    """Three square layers and a last one."""
    torch.manual_seed(0)
    square = [nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24)]
    return nn.Sequential(*square, nn.Linear(24, 3))


def trained(model: nn.Module, step: int) -> None:
    """What step `step` does to weights: small singular values fade until step 12, and then stay."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear) and step < 12:
                left, values, right = torch.linalg.svd(module.weight, full_matrices=False)
                scale = 0.985 ** torch.arange(len(values))
                module.weight.copy_(left * (values * scale) @ right)
