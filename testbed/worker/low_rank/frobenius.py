"""Frobenius decay: weight decay of the product of two factors, in place of that of each."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from testbed.worker.low_rank.factorise import low_rank_layers


class FrobeniusDecay:
    """Adds to the factors' gradients those of coefficient / 2 * ||V U||^2, which are V U U^T and V^T V U times it.

    Khodak et al., "Initialization and Regularization of Factorized Neural Layers", ICLR 2021, arXiv:2105.01029.
    Without it ordinary decay would pull each factor by itself. Nothing of the size of V U is made.

    Args:
        coefficient: as that of ordinary weight decay, from which the factors have to be left out.
    """

    def __init__(self, model: nn.Module, coefficient: float) -> None:
        self._model, self.coefficient = model, coefficient

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Add them just before each step of `optimizer`, to those factors that it has: the gradients of a step are then
        the mean of all ranks. Where two optimizers have a layer's factors, the second sees the first's update."""
        optimizer.register_step_pre_hook(self._before)

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.add(only={id(p) for group in optimizer.param_groups for p in group["params"]})

    @torch.no_grad()
    def add(self, only: set[int] | None = None) -> None:
        """
        Args:
            only: ids of the parameters to whose gradients it is added; None: of all factors. Those without a gradient
                have none after it either.
        """
        for layer in low_rank_layers(self._model).values():
            u_weight, v_weight = layer.u.weight, layer.v.weight
            u, v = u_weight.flatten(1), v_weight.flatten(1)
            if v_weight.grad is not None and (only is None or id(v_weight) in only):
                v_weight.grad.add_((v @ (u @ u.T)).view_as(v_weight), alpha=self.coefficient)
            if u_weight.grad is not None and (only is None or id(u_weight) in only):
                u_weight.grad.add_(((v.T @ v) @ u).view_as(u_weight), alpha=self.coefficient)
