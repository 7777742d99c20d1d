"""LAMB: what its step makes of one tensor, and the optimizer that takes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from testbed.core.declaration import checked
from testbed.core.kinds import Number
from testbed.core.parameters import Fraction, LearningRate, Share

MostRatio = Annotated[float, Number(least=1, below=math.inf)]


@checked
@dataclass(frozen=True, kw_only=True)
class LambRule:
    """How LAMB makes a step of gradients: Adam's direction, scaled layer by layer to the norm of the weights.

    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020, arXiv:1904.00962,
    Algorithm 2, with phi(z) = z. m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; both are divided by
    1 - beta^t; u = m / (sqrt(v) + epsilon) + weight_decay w; w = w - learning_rate |w| / |u| u.
    Differs from the paper: the trust ratio |w| / |u| stays between two bounds, and is 1 where a norm is zero. Tensors
    of one dimension, which are biases and the scales of norms, take Adam's plain step, without weight decay: their
    norms begin at zero, or say nothing of how large a step they bear. The paper's code lets one exclude them so.
    No element of m / sqrt(v) exceeds the most that it can be: a bound for those who take the mean of several m.

    A layer is one tensor. Its step's relative size is the learning rate, whatever its gradients are.
    """

    learning_rate: LearningRate | None
    """null: that of the workload's optimizer, in each step as it then is."""
    beta1: Fraction
    beta2: Fraction
    epsilon: Share
    weight_decay: Fraction
    """Part of u, so that the trust ratio bounds it too."""
    least_ratio: Share
    most_ratio: MostRatio

    def __post_init__(self) -> None:
        if self.beta1**2 >= self.beta2:
            raise ValueError(
                f"beta2={self.beta2}: must be above the square of beta1={self.beta1}; else steps have no bound"
            )

    def rate(self, group: dict[str, Any], initial: float) -> float:
        """Return the learning rate of a step: what a schedule makes of the workload's rate, it makes of an own one.

        Args:
            group: Group of parameters of the workload's optimizer.
            initial: Learning rate that the group began with; 0 if it has none.
        """
        if self.learning_rate is None:
            return float(group["lr"])
        return self.learning_rate * group["lr"] / initial if initial else self.learning_rate

    def add(self, gradient: Tensor, momentum: Tensor, variance: Tensor) -> None:
        """Let both moments take a step."""
        momentum.lerp_(gradient, 1 - self.beta1)
        variance.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)

    def direction(self, weight: Tensor, momentum: Tensor, variance: Tensor, steps: int) -> Tensor:
        """u, a new tensor.

        Args:
            steps: that the moments have taken.
        """
        root = variance.sqrt().mul_((1 - self.beta2**steps) ** -0.5).add_(self.epsilon)
        update = torch.div(momentum, root, out=root).mul_(1 / (1 - self.beta1**steps))
        most = self.most_direction(steps)
        update.clamp_(-most, most)
        return update.add_(weight, alpha=self.weight_decay) if self.adapts(weight) else update

    def most_direction(self, steps: int) -> float:
        """The most that an element of m / sqrt(v), both corrected, can be after so many gradients, whatever they are.

        By Cauchy and Schwarz, with q = beta1^2 / beta2: (1 - beta1) sqrt((1 - q^t) / (1 - q) / (1 - beta2)) before
        correction; 1 after the first gradient. Only an m that is not of the same gradients as v exceeds it.
        """
        q = self.beta1**2 / self.beta2
        squares = (1 - q**steps) / (1 - q) * (1 - self.beta2**steps) / (1 - self.beta2)
        return (1 - self.beta1) / (1 - self.beta1**steps) * math.sqrt(squares)

    def adapts(self, weight: Tensor) -> bool:
        """Whether its step follows its norm, and it decays."""
        return weight.dim() > 1

    def ratio(self, weight_norm: float, update_norm: float) -> float:
        """The trust ratio."""
        if weight_norm > 0 and update_norm > 0:
            return min(max(weight_norm / update_norm, self.least_ratio), self.most_ratio)
        return 1.0

    def step(self, weight: Tensor, momentum: Tensor, variance: Tensor, *, steps: int, rate: float) -> None:
        """Take the step of a whole tensor."""
        update = self.direction(weight, momentum, variance, steps)
        ratio = self.ratio(norm(weight), norm(update)) if self.adapts(weight) else 1.0
        weight.sub_(update, alpha=rate * ratio)


def norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))


class Lamb(torch.optim.Optimizer):
    """Takes LAMB's steps in place of a workload's optimizer.

    Keeps two tensors of each parameter's size.

    Args:
        given: whose parameters it takes over, and whose learning rates, as they are at each step.
    """

    def __init__(self, given: torch.optim.Optimizer, rule: LambRule) -> None:
        super().__init__([{"params": group["params"]} for group in given.param_groups], {})
        self._given, self._rule = given, rule
        self._initial = [group["lr"] for group in given.param_groups]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group, given, initial in zip(self.param_groups, self._given.param_groups, self._initial, strict=True):
            rate = self._rule.rate(given, initial)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, rate)

    def _step(self, parameter: Tensor, rate: float) -> None:
        kept = self.state[parameter]
        if not kept:
            kept |= {"steps": 0, "momentum": torch.zeros_like(parameter), "variance": torch.zeros_like(parameter)}
        kept["steps"] += 1
        assert parameter.grad is not None
        self._rule.add(parameter.grad, kept["momentum"], kept["variance"])
        self._rule.step(parameter, kept["momentum"], kept["variance"], steps=kept["steps"], rate=rate)
