"""A convolution and two linear layers on made-up images, small enough that starting ranks is what takes time."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from testbed.worker.interfaces.workload import Workload

PIXELS, CLASSES = 8, 5


class SmallModel(Workload):
    """Classes that follow from where an image is bright; samples from seed, step and number."""

    metric = None

    def __init__(self, *, learning_rate: float, momentum: float, width: int = 24, alike: bool = False) -> None:
        """
        Args:
            alike: all ranks have the same batches.
        """
        self._learning_rate, self._momentum, self._width, self._alike = learning_rate, momentum, width, alike

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 6, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6 * (PIXELS // 2) ** 2, self._width),
            nn.ReLU(),
            nn.LayerNorm(self._width),
            nn.Linear(self._width, CLASSES),
        )

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self._learning_rate, momentum=self._momentum)

    def samples(self) -> int:
        return 1000

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1000 * seed + step)
        images = torch.randn(world_size * batch_size, 1, PIXELS, PIXELS, generator=generator)
        labels = images.mean(dim=(1, 2))[:, :CLASSES].argmax(dim=1)
        first = 0 if self._alike else rank * batch_size
        own = slice(first, first + batch_size)
        return images[own], labels[own]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def evaluate(self, model: nn.Module) -> float:
        raise NotImplementedError("it has no metric")
