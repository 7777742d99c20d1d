"""Base class of workloads: a model, its data, its loss, its metric."""

from __future__ import annotations

import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from testbed.core.declaration import Declared
from testbed.core.renaming import Renamed

Batch = Any
"""Argument of `loss`; opaque to strategies."""
_SHARES = re.compile(r"accuracy|(^|_)(acc|auc|auroc|f1|precision|recall|iou|dice|exact_match)(_|$)")
"""Names of metrics that are shares."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Measure of the model's quality."""

    name: str
    target: float
    higher_is_better: bool = True
    least: float | None = None
    most: float | None = None
    """Ends of its range. Both None: those of shares, 0 and 1, if its name is that of one, such as accuracy."""

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest value that it can have."""
        if self.least is None and self.most is None and _SHARES.search(self.name.lower()):
            return 0.0, 1.0
        return -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most

    def target_fault(self, target: float) -> str | None:
        """Return what is wrong with `target` as a value of this metric, or None."""
        least, most = self.range
        if least <= target <= most:
            return None
        allowed = f"from {least:g} to {most:g}" if most < math.inf else f"at least {least:g}"
        percent = (least, most) == (0, 1) and 1 < target <= 100
        instead = f"; did you mean target={target / 100:.6g}?" if percent else "; give a value that it can have"
        return f"target={target:.15g}: {self.name} is {allowed if least > -math.inf else f'at most {most:g}'}{instead}"


class Workload(Renamed, Declared, ABC):
    """Base of all workloads, with the methods that each of them has.

    Constructors take keyword-only parameters, raise ValueError with a line for each bad one, and read no data. What
    only some workloads have, such as labels or a model that is a chain, is in
    `testbed.worker.interfaces.workload_capabilities`: a workload that has the methods has the capability.
    """

    renamed: ClassVar[Mapping[str, str]] = {"faults": "validate"}

    metric: ClassVar[Metric | None]
    """Measure of the model's quality. None: nothing is learnt, and there is nothing to evaluate."""
    computes: ClassVar[bool] = True
    """True if it computes. False: a device must say how long its steps take, and its losses mean nothing."""

    def validate(self) -> list[str]:
        """Return a line for everything that the data lack on this machine, as far as it can be found quickly.

        Asked before anything is built.
        """
        return []

    @abstractmethod
    def model(self, seed: int) -> nn.Module:
        """Return a model with the same initial parameters on every rank."""

    @abstractmethod
    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return a new optimizer of all parameters or of some. Asked for several times, also before the run."""

    @abstractmethod
    def samples(self) -> int:
        """Return the number of training samples of one epoch."""

    @abstractmethod
    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Batch:
        """Return this rank's part of the global batch of `step`, counted from 0.

        An epoch covers all samples once. Parts are disjoint, unless the global batch straddles two epochs: a sample may
        come late in the one and early in the other. For the same seed and global batch size the union of the parts does
        not depend on `world_size`. None of that holds if ranks have samples of their own (`partition`).
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss over the batch, a tensor without dimensions."""

    @abstractmethod
    def evaluate(self, model: nn.Module) -> float:
        """Return the metric on held-out data, in evaluation mode and without gradients.

        It leaves the model in training mode. Called for a copy of the model, in a thread next to training: it must
        change nothing that `batch` or `loss` use, and draw nothing from torch's global generator.
        """


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that learn, in order, as an optimizer is given them."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def parameters_crc32(model: nn.Module) -> int:
    """Return the CRC-32 of all parameters' bits, in order."""
    checksum = 0
    for parameter in model.parameters():
        checksum = zlib.crc32(parameter.detach().cpu().contiguous().numpy().data, checksum)
    return checksum
