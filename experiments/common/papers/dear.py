"""What DeAR's reproduction, its bell and SLAMB's reproduction share: models of its paper, and ideal steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.core.device.by_flop import FORWARD_SHARE
from testbed.core.models.catalogue import find_model

RATE_BIT_S = 10e9
WORKERS = {"emulated": 8, "simulated": 64}
_LAYER_S = 0.16
"""Dilation that each layer sent alone takes, times the seconds of the all-reduce: what `auto` comes to on two cores."""


@dataclass(frozen=True)
class Model:
    """One of the paper's, on one GPU of theirs."""

    name: str
    batch_size: int
    samples_s: float | None
    """Measured by the authors' laboratory; None where no figure is known: as ResNet-50 by FLOPs, which is assumed."""
    scale: int
    dilation: float
    tokens: int | None = None

    @property
    def step_s(self) -> float:
        if self.samples_s is not None:
            return round(self.batch_size / self.samples_s, 4)
        known = MODELS["ResNet-50"]
        flop_s = known.batch_size * find_model(known.name).forward_flop / known.step_s
        return round(self.batch_size * find_model(self.name).forward_flop / flop_s, 4)

    def all_reduce_s(self, workers: int) -> float:
        """A ring's, at the links' rate."""
        gradient_bytes = 4 * find_model(self.name).parameters
        return 8 * 2 * (workers - 1) / workers * gradient_bytes / RATE_BIT_S

    def ratio(self, workers: int) -> float:
        """Of all-reduce to backward."""
        return self.all_reduce_s(workers) / ((1 - FORWARD_SHARE) * self.step_s)

    @property
    def slow_dilation(self) -> float:
        layers = len(find_model(self.name).layers)
        return float(math.ceil(_LAYER_S * layers / self.all_reduce_s(WORKERS["emulated"])))

    def overlapped_s(self, workers: int) -> float:
        """A step of ideal overlap with backward."""
        backward_s = (1 - FORWARD_SHARE) * self.step_s
        return FORWARD_SHARE * self.step_s + max(backward_s, self.all_reduce_s(workers))


MODELS = {
    "ResNet-50": Model("resnet50", 64, 253.1, 20, 7.0),
    "DenseNet-201": Model("densenet201", 32, None, 20, 7.0),
    "BERT-base": Model("bert-base", 64, 212.8, 50, 5.0, tokens=64),
    "Inception-v4": Model("inception_v4", 64, None, 20, 7.0),
    "BERT-large": Model("bert-large", 8, 49.0, 50, 5.0, tokens=64),
}
"""samples_s: HKBU-HPML/ddl-benchmarks, results of 2020-05-29, one GPU."""


# The bell: one step of a model over the ratio of communication to computing.

STEP_S = 4.8
BACKWARD_S = (1 - FORWARD_SHARE) * STEP_S


def ideal_s(kind: str, ratio: float) -> float:
    """Of a step whose communication takes what its bytes take at the link's rate."""
    forward_s, all_reduce_s = STEP_S - BACKWARD_S, ratio * BACKWARD_S
    if kind == "dear":
        return max(forward_s, all_reduce_s / 2) + max(BACKWARD_S, all_reduce_s / 2)
    return forward_s + max(BACKWARD_S, all_reduce_s)
