"""Handwritten digits and a small model, for trainings of which there are hundreds: all that a strategy may ask for."""

from __future__ import annotations

import torch
from torch import nn

from testbed.worker.workloads.digits import Digits

PIXELS, HIDDEN, CLASSES = 64, 48, 10


class SmallDigits(Digits):
    """A chain of three linear layers with 5,962 parameters; `digits` has a million."""

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(PIXELS, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, CLASSES),
        )
