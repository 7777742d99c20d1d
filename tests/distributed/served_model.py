"""A model with a norm over the batch, whose losses may be told to jump, and whose held-out samples may object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from testbed.worker.interfaces.numbered_workload import NumberedWorkload

PIXELS, CLASSES, SAMPLES = 64, 5, 400


class Samples(NamedTuple):
    images: Tensor
    labels: Tensor
    factor: float
    """By which their loss is multiplied."""


class ServedModel(NumberedWorkload):
    """Each rank has the same batch in every step, so that losses tell parameters from one another."""

    metric = None

    def __init__(
        self,
        *,
        learning_rate: float,
        momentum: float,
        jumps: Sequence[int] = (),
        objects: bool = False,
    ) -> None:
        """
        Args:
            jumps: steps in which all losses are 20 times as high.
            objects: each loss in evaluation mode is higher than the one before.
        """
        self._learning_rate, self._momentum = learning_rate, momentum
        self._jumps, self._objects = tuple(jumps), objects
        self._objections = 0

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        hidden = 40
        return nn.Sequential(nn.Linear(PIXELS, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self._learning_rate, momentum=self._momentum)

    def samples(self) -> int:
        return SAMPLES

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Samples:
        numbers = self.numbers(0, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed)
        return self.picked(numbers)._replace(factor=20.0 if step in self._jumps else 1.0)

    def picked(self, numbers: Tensor) -> Samples:
        images = torch.randn(SAMPLES, PIXELS, generator=torch.Generator().manual_seed(5))
        return Samples(images[numbers], images[:, :CLASSES].argmax(dim=1)[numbers], 1.0)

    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        if self._objects and not model.training:
            self._objections += 1
            return torch.tensor(float(self._objections))
        return batch.factor * nn.functional.cross_entropy(model(batch.images), batch.labels)

    def evaluate(self, model: nn.Module) -> float:
        raise NotImplementedError("it has no metric")
