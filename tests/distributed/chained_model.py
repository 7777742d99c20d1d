"""A chain of layers to freeze while real ranks train it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from testbed.worker.data.pretrained.fine_tuned import Labelled
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.model.chain import Chain
from testbed.worker.model.pieces import Piece
from tests.unit.worker import chained


class ChainedModel(NumberedWorkload):
    metric = None

    def __init__(self, *, optimizer: str = "sgd") -> None:
        self._kind = optimizer

    def model(self, seed: int) -> Chain:
        return chained.chain(seed)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        if self._kind == "adamw":
            return torch.optim.AdamW(parameters, lr=0.01)
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def samples(self) -> int:
        return chained.SAMPLES

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Labelled:
        return self.picked(self.numbers(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed))

    def picked(self, numbers: Tensor) -> Labelled:
        return chained.picked(numbers)

    def labels(self) -> Tensor:
        return chained.picked(torch.arange(chained.SAMPLES)).labels

    def loss(self, model: nn.Module, batch: Labelled) -> Tensor:
        return chained.loss(model, batch)

    def pieces(self, model: nn.Module) -> list[Piece]:
        assert isinstance(model, Chain)
        return model.chained()

    def inputs(self, batch: Labelled) -> Tensor:
        return batch.inputs

    def loss_of(self, output: Tensor, batch: Labelled) -> Tensor:
        return nn.functional.cross_entropy(output, batch.labels)

    def evaluate(self, model: nn.Module) -> float:
        raise NotImplementedError("it has no metric")
