"""Base class of workloads that predict the next byte of published texts."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from testbed.core.kinds import Choice, Whole
from testbed.core.parameters import CountOrZero, Fraction, LearningRate, NotNegative, Positive, raise_all
from testbed.worker.data.published.byte_model import HEADS, MAX_PARAMETERS, ByteModel, parameters_of
from testbed.worker.data.published.dataset import Dataset
from testbed.worker.data.published.documents import CONTEXT, Corpus, corpus_of, sequences
from testbed.worker.interfaces.clipping import clipped
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import FALLING, ScheduleName
from testbed.worker.model.pieces import Piece

_EVALUATED, _EVALUATED_AT_ONCE = 512, 128
"""Sequences of an evaluation, and those of one forward."""


class NextByte(NumberedWorkload):
    """A `ByteModel` on sequences of 64 bytes, each of one document, which is the sample's label.

    Args:
        learning_rate: Learning rate.
        optimizer: Optimizer; SGD has Nesterov momentum.
        momentum: Momentum of SGD; AdamW has 0.9 and 0.95.
        weight_decay: Weight decay of AdamW.
        clip_norm: Largest norm of a step's gradients; null: unlimited.
        width: Width of the transformer. The model may have 1.5 million parameters.
        blocks: Blocks of the transformer.

    Raises:
        ValueError: A parameter is out of its range, or the model is too large.
    """

    dataset: ClassVar[Dataset]
    _samples: ClassVar[int]

    def __init__(
        self,
        *,
        learning_rate: LearningRate = 0.006,
        optimizer: Annotated[str, Choice(("adamw", "sgd"))] = "adamw",
        momentum: Fraction = 0.9,
        weight_decay: NotNegative = 0.1,
        clip_norm: Positive | None = 1.0,
        width: Annotated[int, Whole(16, 512, multiple_of=HEADS)] = 96,
        blocks: Annotated[int, Whole(1, 16)] = 2,
        schedule: ScheduleName = FALLING,
        warm_up_steps: CountOrZero = 20,
        partition: AnyPartition | None = None,
    ) -> None:
        size = parameters_of(width, blocks)
        too_large = f"width={width} blocks={blocks}: {size:,} parameters; at most {MAX_PARAMETERS:,}: use lower ones"
        raise_all(too_large if size > MAX_PARAMETERS else None)
        self.learning_rate, self.optimizer_name, self.momentum = learning_rate, optimizer, momentum
        self.weight_decay, self.clip_norm = weight_decay, clip_norm
        self.width, self.blocks, self.partition = width, blocks, partition
        self.schedule, self.warm_up_steps = schedule, warm_up_steps

    def to_fetch(self) -> str | None:
        return self.dataset.to_fetch()

    def licence(self) -> str:
        return self.dataset.licence

    def data_hash(self) -> str:
        self._corpus()
        return self.dataset.sha256

    def preload(self) -> None:
        self._corpus()

    def model(self, seed: int) -> nn.Module:
        model = ByteModel(self.width, self.blocks)
        model.draw(torch.Generator().manual_seed(seed))
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer
        if self.optimizer_name == "sgd":
            nesterov = self.momentum > 0
            made = torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum, nesterov=nesterov)
        else:
            rate, decay = self.learning_rate, self.weight_decay
            made = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=decay)
        return clipped(made, self.clip_norm)

    def samples(self) -> int:
        return self._samples

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Tensor:
        """Return sequences of one byte more than the context: inputs, and the bytes to be predicted."""
        return self.picked(self.numbers(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed))

    def picked(self, numbers: Tensor) -> Tensor:
        corpus = self._corpus()
        return sequences(corpus.text, corpus.starts[numbers])

    def labels(self) -> Tensor:
        """Return the number of the document that the sample is of, in their order."""
        return self._corpus().owners

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return nats per byte."""
        return self.loss_of(model(batch[:, :-1]), batch)

    def pieces(self, model: nn.Module) -> list[Piece]:
        assert isinstance(model, ByteModel)
        return model.pieces()

    def inputs(self, batch: Tensor) -> Tensor:
        return batch[:, :-1]

    def loss_of(self, output: Tensor, batch: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), batch[:, 1:].flatten())

    def sample_losses(self, model: nn.Module, batch: Tensor) -> Tensor:
        logits = model(batch[:, :-1]).transpose(1, 2)
        return nn.functional.cross_entropy(logits, batch[:, 1:], reduction="none").mean(1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        text = self._corpus().held_out
        # sequences spread evenly over the test part
        starts = torch.arange(_EVALUATED) * ((len(text) - 1) // CONTEXT) // _EVALUATED * CONTEXT
        model.eval()
        nats = sum(float(self.loss(model, sequences(text, some))) for some in starts.split(_EVALUATED_AT_ONCE))
        model.train()
        return nats * _EVALUATED_AT_ONCE / _EVALUATED / math.log(2)

    def _corpus(self) -> Corpus:
        return _corpus(self.dataset)


@functools.cache
def _corpus(dataset: Dataset) -> Corpus:
    return corpus_of(dataset.array())
