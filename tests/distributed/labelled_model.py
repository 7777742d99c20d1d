"""Samples that have labels, by which they are divided among clients, and a model that takes batches of any size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.distributed.served_model import CLASSES, PIXELS, SAMPLES, ServedModel


class LabelledModel(ServedModel):
    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(PIXELS, 40), nn.ReLU(), nn.Linear(40, CLASSES))

    def labels(self) -> Tensor:
        return self.picked(torch.arange(SAMPLES)).labels
