"""What workloads have in common that train on from weights which were trained before on something else."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from testbed.core.kinds import Choice
from testbed.core.parameters import CountOrZero, Flag, Fraction, LearningRate
from testbed.worker.data.pretrained.weights import State, weights_hash
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import ScheduleName
from testbed.worker.model.chain import Chain, Readout
from testbed.worker.model.pieces import Piece

OPTIMIZERS = ("adamw", "sgd")
Optimizer = Annotated[str, Choice(OPTIMIZERS)]
_HEAD_DEVIATION = 0.02
"""Of the task's own weights, before training."""
_EVALUATED_AT_ONCE = 100


class Labelled(NamedTuple):
    """Training samples with their numbers, by which a model may know them again."""

    numbers: Tensor
    inputs: Tensor
    labels: Tensor


class FineTuned(NumberedWorkload):
    """A chain that finds the class of a sample, and begins with weights that were trained before.

    The optimizer is AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019), or SGD with
    Nesterov momentum.

    Args:
        learning_rate: Learning rate.
        optimizer: Optimizer; SGD has Nesterov momentum.
        momentum: Momentum of SGD; AdamW has 0.9 and 0.999.
        pretrained: Start from the pretrained weights. false, to compare with: weights drawn from the seed.

    Raises:
        ValueError: with a line for each parameter that is not one of these.
    """

    def __init__(
        self,
        *,
        learning_rate: LearningRate,
        optimizer: Optimizer,
        momentum: Fraction,
        pretrained: Flag,
        partition: AnyPartition | None,
        schedule: ScheduleName,
        warm_up_steps: CountOrZero,
    ) -> None:
        self.learning_rate, self.optimizer_name, self.momentum = learning_rate, optimizer, momentum
        self.pretrained, self.partition = pretrained, partition
        self.schedule, self.warm_up_steps = schedule, warm_up_steps

    @abstractmethod
    def _untrained(self, random: torch.Generator) -> Chain:
        """The model of the task, as drawn."""

    @abstractmethod
    def _weights(self) -> State:
        """What was trained before: all but the readout's head."""

    @abstractmethod
    def _training(self) -> tuple[Tensor, Tensor]:
        """Inputs as they are stored, and labels, int64."""

    @abstractmethod
    def _test(self) -> tuple[Tensor, Tensor]:
        """As `_training`, never trained on."""

    @abstractmethod
    def _prepared(self, stored: Tensor) -> Tensor:
        """What the model takes."""

    @abstractmethod
    def _source_hash(self) -> str:
        """Of what samples are made of."""

    def data_hash(self) -> str:
        """Of the weights too, where there are some: other processors round otherwise."""
        source = self._source_hash()
        if not self.pretrained:
            return source
        return hashlib.sha256(f"{source} {weights_hash(self._weights())}".encode()).hexdigest()

    def preload(self) -> None:
        self._training()
        if self.pretrained:
            self._weights()

    def model(self, seed: int) -> Chain:
        random = torch.Generator().manual_seed(seed)
        model = self._untrained(random)
        if self.pretrained:
            model.load_state_dict(self._weights(), strict=False)
        assert isinstance(model.readout, Readout)
        head = model.readout.head
        nn.init.normal_(head.weight, std=_HEAD_DEVIATION, generator=random)
        nn.init.zeros_(head.bias)
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        if self.optimizer_name == "sgd":
            return torch.optim.SGD(
                parameters, lr=self.learning_rate, momentum=self.momentum, nesterov=self.momentum > 0
            )
        return torch.optim.AdamW(parameters, lr=self.learning_rate)

    def samples(self) -> int:
        return len(self._training()[1])

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Labelled:
        return self.picked(self.numbers(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed))

    def picked(self, numbers: Tensor) -> Labelled:
        stored, labels = self._training()
        return Labelled(numbers, self._prepared(stored[numbers]), labels[numbers])

    def labels(self) -> Tensor:
        """The classes."""
        return self._training()[1]

    def loss(self, model: nn.Module, batch: Labelled) -> Tensor:
        return nn.functional.cross_entropy(model(batch.inputs, batch.numbers), batch.labels)

    def pieces(self, model: nn.Module) -> list[Piece]:
        assert isinstance(model, Chain)
        return model.chained()

    def inputs(self, batch: Labelled) -> Tensor:
        return batch.inputs

    def loss_of(self, output: Tensor, batch: Labelled) -> Tensor:
        return nn.functional.cross_entropy(output, batch.labels)

    def sample_losses(self, model: nn.Module, batch: Labelled) -> Tensor:
        return nn.functional.cross_entropy(model(batch.inputs, batch.numbers), batch.labels, reduction="none")

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        stored, labels = self._test()
        model.eval()
        right = 0
        for some, expected in zip(stored.split(_EVALUATED_AT_ONCE), labels.split(_EVALUATED_AT_ONCE), strict=True):
            right += int((model(self._prepared(some)).argmax(dim=1) == expected).sum())
        model.train()
        return right / len(labels)
