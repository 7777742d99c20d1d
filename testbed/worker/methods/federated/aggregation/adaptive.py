"""Rules of servers whose steps adapt to each parameter: FedAdagrad, FedAdam, FedYogi."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.core.parameters import Fraction, Positive
from testbed.worker.methods.federated.aggregation.rules import Rule


class Adaptive(Rule):
    """m = beta1 m + (1 - beta1) mean; v as each has it; w += eta m / (sqrt(v) + tau).

    Reddi et al., "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295, algorithm 2: from m = 0 and v = tau²,
    and without Adam's correction of bias. The mean is by samples, as in their experiments.

    Args:
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        tau: Adaptivity, in the unit of deltas. The lower, the more equal are the steps of all parameters.
    """

    kept = ("momenta", "variances")
    momenta: list[Tensor]
    variances: list[Tensor]

    def __init__(
        self, *, learning_rate: Positive = 0.1, beta1: Fraction = 0.9, beta2: Fraction = 0.99, tau: Positive = 1e-3
    ) -> None:
        self.beta1, self.beta2, self.tau = beta1, beta2, tau
        super().__init__(learning_rate=learning_rate)

    def _move(self, total: Sequence[Tensor], participants: int) -> list[Tensor]:
        momenta = self.momenta or [torch.zeros_like(tensor) for tensor in total]
        variances = self.variances or [torch.full_like(tensor, self.tau**2) for tensor in total]
        self.momenta = [self.beta1 * old + (1 - self.beta1) * new for old, new in zip(momenta, total, strict=True)]
        self.variances = [self._variance(old, new.square()) for old, new in zip(variances, total, strict=True)]
        return [
            self.learning_rate * m / (v.sqrt() + self.tau) for m, v in zip(self.momenta, self.variances, strict=True)
        ]

    @abstractmethod
    def _variance(self, variance: Tensor, square: Tensor) -> Tensor: ...


class FedAdam(Adaptive):
    """v = beta2 v + (1 - beta2) mean²."""

    def _variance(self, variance: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * variance + (1 - self.beta2) * square


class FedYogi(Adaptive):
    """v = v - (1 - beta2) mean² sign(v - mean²): it shrinks no faster than mean² allows."""

    def _variance(self, variance: Tensor, square: Tensor) -> Tensor:
        return variance - (1 - self.beta2) * square * (variance - square).sign()


class FedAdagrad(Adaptive):
    """v = v + mean²; `beta1` is 0 unless given, and there is no `beta2`."""

    def __init__(self, *, learning_rate: Positive = 0.1, beta1: Fraction = 0.0, tau: Positive = 1e-3) -> None:
        super().__init__(learning_rate=learning_rate, beta1=beta1, tau=tau)

    def _variance(self, variance: Tensor, square: Tensor) -> Tensor:
        return variance + square
