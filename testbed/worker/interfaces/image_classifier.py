"""Labelled images and a network of layers one after the other: what workloads of that kind have in common."""

from __future__ import annotations

from torch import Tensor, nn

from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.model.pieces import Piece, pieces_of

Images = tuple[Tensor, Tensor]
"""Images, and the class of each."""


class ImageClassifier(NumberedWorkload):
    """Workload whose batches are `Images` and whose loss is cross-entropy."""

    def picked(self, numbers: Tensor) -> Images:
        raise NotImplementedError

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Images:
        return self.picked(self.numbers(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed))

    def loss(self, model: nn.Module, batch: Images) -> Tensor:
        return self.loss_of(model(batch[0]), batch)

    def pieces(self, model: nn.Module) -> list[Piece]:
        assert isinstance(model, nn.Sequential)
        return pieces_of(model)

    def inputs(self, batch: Images) -> Tensor:
        return batch[0]

    def loss_of(self, output: Tensor, batch: Images) -> Tensor:
        return nn.functional.cross_entropy(output, batch[1])

    def sample_losses(self, model: nn.Module, batch: Images) -> Tensor:
        images, classes = batch
        return nn.functional.cross_entropy(model(images), classes, reduction="none")
