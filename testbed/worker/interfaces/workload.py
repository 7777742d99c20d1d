"""What a workload is: a model, its data, its loss, its metric."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from testbed.core.renaming import Renamed

Batch = Any
"""What `loss` takes; opaque to strategies."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How good the model is."""

    name: str
    target: float
    higher_is_better: bool = True


class Workload(Renamed, ABC):
    """Base of all workloads: what each has to have.

    Constructors take keyword-only parameters, raise ValueError with a line for each bad one, and read no data. What
    only some workloads have, such as labels or a model that is a chain, is in
    `testbed.worker.interfaces.workload_capabilities`: a workload that has the methods has the capability.
    """

    renamed: ClassVar[Mapping[str, str]] = {"faults": "validate"}

    metric: ClassVar[Metric | None]
    """None: nothing is learnt, and there is nothing to evaluate."""
    computes: ClassVar[bool] = True
    """False: it does no arithmetic, so that a device must say how long it takes, and its losses mean nothing."""

    def validate(self) -> list[str]:
        """Return what the data lack on this machine, as far as can be told quickly; asked before anything is built."""
        return []

    @abstractmethod
    def model(self, seed: int) -> nn.Module:
        """Return a model with the same initial parameters on every rank."""

    @abstractmethod
    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return a new one, of all parameters or of some: it is asked for several times, also before the run."""

    @abstractmethod
    def samples(self) -> int:
        """Return the number of training samples of one epoch."""

    @abstractmethod
    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Batch:
        """Return this rank's part of the global batch of `step`, counted from 0.

        An epoch covers all samples once. Parts are disjoint, but where the global batch straddles two epochs: a sample
        may come late in the one and early in the other. For the same seed and global batch size the union of the parts
        does not depend on `world_size`. None of that where ranks have samples of their own (`partition`).
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss over the batch, a tensor without dimensions."""

    @abstractmethod
    def evaluate(self, model: nn.Module) -> float:
        """Return the metric on held-out data, in evaluation mode and without gradients; leave the model in training
        mode.

        Called for a copy of the model, in a thread beside training: it must change nothing that `batch` or `loss` use,
        and draw nothing from torch's global generator.
        """


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Those that learn, in order: what an optimizer is given."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def parameters_crc32(model: nn.Module) -> int:
    """Of all parameters' bits, in order."""
    checksum = 0
    for parameter in model.parameters():
        checksum = zlib.crc32(parameter.detach().cpu().contiguous().numpy().data, checksum)
    return checksum
