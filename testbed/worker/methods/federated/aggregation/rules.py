"""What a server makes of what a round's clients have sent: the change of its model.

A rule says how much each client counts, and what follows from their sum. Both are apart so that sums may be made as
messages arrive (`Fold`), or in a robust way (`testbed.worker.methods.federated.aggregation.robust`).

| rule | weighting | state | source |
|---|---|---|---|
| FedAvg | samples | - | McMahan et al., AISTATS 2017, arXiv:1602.05629 |
| FedAvgM | samples | momentum | Hsu et al., arXiv:1909.06335 |
| FedAdagrad, FedAdam, FedYogi (`adaptive`) | samples | both moments | Reddi et al., ICLR 2021, arXiv:2003.00295 |
| FedNova | samples over steps | momentum, if any | Wang et al., NeurIPS 2020, arXiv:2007.07481 |
| FedDyn | alike | h | Acar et al., ICLR 2021, arXiv:2111.04263 |
| Scaffold | alike | control variate | Karimireddy et al., ICML 2020, arXiv:1910.06378 |

All in float64: 8 bytes a parameter for each tensor of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from testbed.core.declaration import Declared
from testbed.core.parameters import Count, Fraction, Positive
from testbed.worker.methods.federated.aggregation.fold import Update, combined, in_order, require_shapes
from testbed.worker.methods.federated.aggregation.weighting import Alike, ByProgress, BySamples, Weighting


class Rule(Declared, ABC):
    """
    Args:
        learning_rate: Learning rate of the server (eta, eta_g).

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    kept: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that are its state: lists of tensors, empty before the first round."""

    def __init__(self, *, learning_rate: Positive = 1.0) -> None:
        self.learning_rate = learning_rate
        self.weighting = self._weighting()
        for name in self.kept:
            setattr(self, name, [])

    def round(self, updates: Iterable[Update]) -> list[Tensor]:
        """
        Returns:
            What is to be added to the server's parameters, in float64; the same bits in any order of the updates.

        Raises:
            ValueError: there are none, two are of one client, or one's tensors are of other shapes than those before
                or not finite; then nothing has changed.
        """
        found = in_order(updates)
        return self.move(combined(self.weighting, found), len(found))

    def move(self, total: Sequence[Tensor], participants: int) -> list[Tensor]:
        """
        Args:
            total: of a round's deltas, float64, by `weighting`; it is not changed.
            participants: how many clients it is of.

        Returns:
            What is to be added to the server's parameters, in float64.

        Raises:
            ValueError: as of `require_known`, or more take part than there are; then nothing has changed.
        """
        self.require_known(total)
        return self._move(total, participants)

    def require_known(self, tensors: Sequence[Tensor]) -> None:
        """
        Raises:
            ValueError: `tensors` have not the shapes of the rounds before, as far as the state tells.
        """
        for name in self.kept:
            require_shapes(getattr(self, name) or tensors, tensors, type(self).__name__)

    def state_dict(self) -> dict[str, Any]:
        """Between two rounds."""
        return {name: [tensor.clone() for tensor in getattr(self, name)] for name in self.kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of a rule with the same parameters."""
        for name in self.kept:
            setattr(self, name, [tensor.clone() for tensor in state[name]])

    @abstractmethod
    def _move(self, total: Sequence[Tensor], participants: int) -> list[Tensor]: ...

    def _weighting(self) -> Weighting:
        return BySamples()


class FedAvg(Rule):
    """w += eta * mean, by samples; with eta = 1 the mean of clients' parameters.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
    arXiv:1602.05629. FedProx's server is the same (Li et al., MLSys 2020, arXiv:1812.06127).
    """

    def _move(self, total: Sequence[Tensor], participants: int) -> list[Tensor]:
        return [self.learning_rate * tensor for tensor in total]


class FedAvgM(Rule):
    """m = momentum * m + mean, w += eta * m; from m = 0. Without momentum: FedAvg.

    Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
    arXiv:1909.06335.

    Args:
        momentum: Momentum of the server.
    """

    kept = ("momenta",)
    momenta: list[Tensor]

    def __init__(self, *, learning_rate: Positive = 1.0, momentum: Fraction = 0.9) -> None:
        self.momentum = momentum
        super().__init__(learning_rate=learning_rate)

    def _move(self, total: Sequence[Tensor], participants: int) -> list[Tensor]:
        before = self.momenta or [torch.zeros_like(tensor) for tensor in total]
        self.momenta = [self.momentum * old + new for old, new in zip(before, total, strict=True)]
        return [self.learning_rate * one for one in self.momenta]


class FedNova(FedAvgM):
    """FedAvgM on progress per step: whoever takes more steps does not count for more. With equal steps, and without
    momentum, FedAvg.

    Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
    arXiv:2007.07481. Differs: the server may have momentum, as FedAvgM.

    Args:
        effective_steps: Effective steps (tau); null: clients' mean, by samples.
    """

    def __init__(
        self, *, learning_rate: Positive = 1.0, momentum: Fraction = 0.0, effective_steps: Positive | None = None
    ) -> None:
        self.effective_steps = effective_steps
        super().__init__(learning_rate=learning_rate, momentum=momentum)

    def _weighting(self) -> Weighting:
        return ByProgress(effective_steps=self.effective_steps)


class FedDyn(Rule):
    """h = h - alpha |S| / N * mean; w += mean - h / alpha; the mean counts all alike. N clients there are, |S| of which
    took part. Clients have a term of their own: `testbed.worker.methods.federated.aggregation.corrections`.

    Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, arXiv:2111.04263, algorithm 1, in
    which the server's parameters are the mean of clients' less h / alpha.

    Args:
        alpha: Weight of the regulariser, the clients' too.
        clients: Number of clients (N).
    """

    kept = ("h",)
    h: list[Tensor]

    def __init__(self, *, clients: Count, alpha: Positive = 0.01) -> None:
        self.clients, self.alpha = clients, alpha
        super().__init__()

    def _move(self, total: Sequence[Tensor], participants: int) -> list[Tensor]:
        _require_few(participants, self.clients)
        before = self.h or [torch.zeros_like(tensor) for tensor in total]
        part = self.alpha * participants / self.clients
        self.h = [old - part * new for old, new in zip(before, total, strict=True)]
        return [mean - h / self.alpha for mean, h in zip(total, self.h, strict=True)]

    def _weighting(self) -> Weighting:
        return Alike()


class Scaffold(Rule):
    """w += eta_g * mean of deltas; c += |S| / N * mean of the changes of control variates; all count alike. N clients
    there are, |S| of which took part. Clients correct their gradients:
    `testbed.worker.methods.federated.aggregation.corrections`.

    Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, arXiv:1910.06378,
    algorithm 1 with option II. Twice the bytes of FedAvg each way: an update has the deltas of all parameters, and then
    the change of the variate of each; a broadcast has c beside the model.

    Args:
        clients: Number of clients (N).
    """

    kept = ("variate",)
    variate: list[Tensor]
    """c; none before the first round, where it is 0. The mean of all clients' own."""

    def __init__(self, *, clients: Count, learning_rate: Positive = 1.0) -> None:
        self.clients = clients
        super().__init__(learning_rate=learning_rate)

    def _move(self, total: Sequence[Tensor], participants: int) -> list[Tensor]:
        _require_few(participants, self.clients)
        deltas, changes = total[: len(total) // 2], total[len(total) // 2 :]
        before = self.variate or [torch.zeros_like(tensor) for tensor in changes]
        part = participants / self.clients
        self.variate = [old + part * new for old, new in zip(before, changes, strict=True)]
        return [self.learning_rate * delta for delta in deltas]

    def require_known(self, tensors: Sequence[Tensor]) -> None:
        deltas, changes = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
        require_shapes(deltas, changes, "SCAFFOLD's control variates, which come after the deltas of all parameters")
        super().require_known(changes)

    def _weighting(self) -> Weighting:
        return Alike()


def _require_few(participants: int, clients: int) -> None:
    if participants > clients:
        raise ValueError(f"clients={clients}: {participants} have sent something; give the number of all there are")
