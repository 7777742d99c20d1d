"""A model that does what layer-wise waits could get wrong, under Adam with a learning rate that changes each step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from testbed.worker.interfaces.workload import Workload

WIDTH = 24


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 1)  # registered before what runs before it
        self.read = nn.Linear(WIDTH, WIDTH)  # its weight is read, itself never called
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.sometimes = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.first = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: Tensor, step: int) -> Tensor:
        hidden = torch.tanh(self.first(inputs)) * self.scale
        hidden = torch.tanh(self.twice(torch.tanh(self.twice(hidden))))
        if step % 2:
            hidden = hidden + self.sometimes(hidden)
        return self.last(torch.tanh(nn.functional.linear(hidden, self.read.weight)))


COUNT = len(list(Odd().parameters()))


class OddModel(Workload):
    """Regression on numbers that follow from the seed, the step and the sample."""

    metric = None

    def __init__(self, *, learning_rate: float, momentum: float) -> None:
        self._learning_rate, self._momentum = learning_rate, momentum
        self._first_optimizer: torch.optim.Optimizer | None = None

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return Odd()

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        given = list(parameters)
        made = torch.optim.Adam(given, self._learning_rate, (self._momentum, 0.99))
        if len(given) == COUNT:  # the run's own: asked for with all parameters
            self._first_optimizer = self._first_optimizer or made
        return made

    def samples(self) -> int:
        return 1000

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> tuple[Tensor, int]:
        if self._first_optimizer is not None:  # the run's; a schedule changes it between two steps
            for group in self._first_optimizer.param_groups:
                group["lr"] = self._learning_rate / (1 + step)
        generator = torch.Generator().manual_seed(seed * 1000 + step * world_size + rank)
        return torch.randn(batch_size, WIDTH, generator=generator), step

    def loss(self, model: nn.Module, batch: tuple[Tensor, int]) -> Tensor:
        inputs, step = batch
        return (model(inputs, step) - inputs.sum(1, keepdim=True)).square().mean()

    def evaluate(self, model: nn.Module) -> float:
        raise NotImplementedError("it has no metric")
