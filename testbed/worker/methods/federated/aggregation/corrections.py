"""What clients add to their gradients, and what they remember: FedProx, SCAFFOLD, FedDyn.

Lists have one tensor for each parameter, in order. Nothing is changed in place, and autograd sees nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.core.parameters import number, raise_all, whole


@torch.no_grad()
def proximal(values: Sequence[Tensor], began: Sequence[Tensor], mu: float) -> list[Tensor]:
    """The gradient of mu/2 ||w - w_t||², mu (w - w_t), to be added to that of the loss.

    Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127 (FedProx).

    Args:
        values: the client's parameters now (w).
        began: those that the server sent (w_t).

    Raises:
        ValueError: mu is below 0 or not finite.
    """
    raise_all(number("mu", mu, least=0, below=math.inf))
    return [mu * (value - start) for value, start in zip(values, began, strict=True)]


@torch.no_grad()
def scaffold_drift(server: Sequence[Tensor], own: Sequence[Tensor]) -> list[Tensor]:
    """c - c_i, to be added to a gradient: a step is y -= eta_l (g - c_i + c).

    Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, arXiv:1910.06378,
    algorithm 1.

    Args:
        server: the control variate of the server (c).
        own: that of the client (c_i); 0 before it has taken part.
    """
    return [c - c_i for c, c_i in zip(server, own, strict=True)]


@torch.no_grad()
def scaffold_variate(
    own: Sequence[Tensor],
    server: Sequence[Tensor],
    began: Sequence[Tensor],
    values: Sequence[Tensor],
    *,
    steps: int,
    learning_rate: float,
) -> list[Tensor]:
    """Option II: c_i - c + (x - y) / (K eta_l), the client's next control variate; in the server's rule goes what it is
    more than `own`. With steps y -= eta_l (g - c_i + c) it is the mean of the round's gradients; with momentum or
    another optimizer it is not.

    Args:
        server: c that the client had in this round.
        began: what the server sent (x).
        values: what they have become (y).
        steps: taken (K).
        learning_rate: of them (eta_l).

    Raises:
        ValueError: a number is out of its range; all of them, one a line.
    """
    raise_all(whole("steps", steps, 1), number("learning_rate", learning_rate, above=0, below=math.inf))
    return [
        c_i - c + (x - y) / (steps * learning_rate) for c_i, c, x, y in zip(own, server, began, values, strict=True)
    ]


@torch.no_grad()
def dynamic(
    values: Sequence[Tensor], began: Sequence[Tensor], remembered: Sequence[Tensor], alpha: float
) -> list[Tensor]:
    """The gradient of -<g_k, w> + alpha/2 ||w - w_t||², alpha (w - w_t) - g_k, to be added to that of the loss.

    Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, arXiv:2111.04263 (FedDyn),
    algorithm 1.

    Args:
        values: the client's parameters now (w).
        began: those that the server sent (w_t).
        remembered: the client's g_k; 0 before it has taken part.
        alpha: the server's.

    Raises:
        ValueError: alpha is not above 0 and finite.
    """
    raise_all(number("alpha", alpha, above=0, below=math.inf))
    return [alpha * (w - w_t) - g for w, w_t, g in zip(values, began, remembered, strict=True)]


def dynamic_memory(
    values: Sequence[Tensor], began: Sequence[Tensor], remembered: Sequence[Tensor], alpha: float
) -> list[Tensor]:
    """g_k - alpha (w - w_t), to be remembered at the end of a round: where `dynamic` and the loss's gradient are 0
    together, it is the loss's gradient there.

    Args:
        As of `dynamic`.

    Raises:
        ValueError: alpha is not above 0 and finite.
    """
    return [-one for one in dynamic(values, began, remembered, alpha)]
