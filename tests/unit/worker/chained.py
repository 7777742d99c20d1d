"""A chain small enough to be trained in no time, and batches for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from testbed.worker.data.pretrained.fine_tuned import Labelled
from testbed.worker.model.chain import Chain, Readout, drawn
from testbed.worker.model.transformer_block import Block

TOKENS, WIDTH, CLASSES, SAMPLES, LAYERS = 4, 8, 3, 40, 5


def chain(seed: int = 0) -> Chain:
    model = Chain(
        nn.Linear(3, WIDTH),
        [Block(WIDTH, 2, causal=False) for _ in range(LAYERS)],
        Readout(WIDTH, CLASSES, at=None),
    )
    drawn(model, torch.Generator().manual_seed(seed), 0.2)
    return model


def inputs() -> Tensor:
    return torch.randn(SAMPLES, TOKENS, 3, generator=torch.Generator().manual_seed(7))


def picked(numbers: Tensor) -> Labelled:
    data = inputs()
    return Labelled(numbers, data[numbers], data[:, 0].argmax(1)[numbers])


def loss(model: nn.Module, batch: Labelled) -> Tensor:
    return nn.functional.cross_entropy(model(batch.inputs, batch.numbers), batch.labels)
