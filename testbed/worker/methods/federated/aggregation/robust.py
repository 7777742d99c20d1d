"""What stands for a round's clients when some of them lie: in the place of the mean that a rule takes.

    change = rule.move(defence.combined(updates), len(updates))

All count alike, but for `NormClipping`: what a client says of its samples would be a way to count for more. All of a
round's updates are kept until the end, and held once more in float64. That no more than f clients lie is assumed.
Steps of clients do not count: FedNova's normalisation is lost. Of SCAFFOLD's updates each is one whole, the change of
its control variate with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from testbed.core.declaration import Declared
from testbed.core.parameters import Count, CountOrZero, Positive
from testbed.worker.methods.federated.aggregation.fold import Update, in_order, require_alike
from testbed.worker.methods.federated.aggregation.weighting import BySamples


class Defence(Declared, ABC):
    def combined(self, updates: Iterable[Update]) -> list[Tensor]:
        """
        Returns:
            Of a delta's shapes, in float64; the same bits in any order of the updates.

        Raises:
            ValueError: there are too few, two are of one client, or one's tensors are of other shapes or not finite.
        """
        found = in_order(updates)
        least = self.least_clients
        if len(found) < least:
            raise ValueError(f"{type(self).__name__}: {len(found)} clients have sent something; needs {least} or more")
        for update in found:
            require_alike(found[0].delta, update.delta, f"client {update.client}")
        stacks = [torch.stack(tensors).double() for tensors in zip(*(one.delta for one in found), strict=True)]
        return self._combined(found, stacks)

    @property
    def least_clients(self) -> int:
        """That must have sent something."""
        return 1

    @abstractmethod
    def _combined(self, updates: Sequence[Update], stacks: Sequence[Tensor]) -> list[Tensor]:
        """
        Args:
            stacks: of each parameter the deltas of all clients: (clients, *shape), float64.
        """


class Median(Defence):
    """Of each coordinate; of an even number of clients the mean of the two in the middle. Within the range of honest
    values while fewer than half lie.

    Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018, arXiv:1803.01498,
    algorithm 1, option I.
    """

    def _combined(self, updates: Sequence[Update], stacks: Sequence[Tensor]) -> list[Tensor]:
        trimmed = (len(updates) - 1) // 2
        return [_middle(stack, trimmed) for stack in stacks]


class TrimmedMean(Defence):
    """Of each coordinate the mean without the f largest and the f smallest.

    Yin et al., ICML 2018, arXiv:1803.01498, algorithm 1, option II, with f = beta * clients.

    Args:
        most_liars: Most attackers withstood (f); 0: the plain mean.

    Raises:
        ValueError: it is below 0. In `combined`: there are not more than 2 f clients.
    """

    def __init__(self, *, most_liars: CountOrZero) -> None:
        self._liars = most_liars

    @property
    def least_clients(self) -> int:
        return 2 * self._liars + 1

    def _combined(self, updates: Sequence[Update], stacks: Sequence[Tensor]) -> list[Tensor]:
        return [_middle(stack, self._liars) for stack in stacks]


class Krum(Defence):
    """The mean of those deltas that are closest to others: with the lowest scores, the sum of the squared distances to
    the n - f - 2 nearest others. Of equal scores that of the lowest client.

    Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017: Krum takes
    one, Multi-Krum several. Scores cost n² distances of whole deltas.

    Args:
        most_liars: Most attackers withstood (f).
        chosen: Deltas averaged, up to n - f; null: n - f - 2. Those are the ones that a score counts.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line. In `combined`: there are fewer than
            2 f + 3 clients, or than `chosen` + f.
    """

    def __init__(self, *, most_liars: CountOrZero, chosen: Count | None = 1) -> None:
        self._liars, self._chosen = most_liars, chosen

    @property
    def least_clients(self) -> int:
        return max(2 * self._liars + 3, (self._chosen or 0) + self._liars)

    def scores(self, stacks: Sequence[Tensor]) -> Tensor:
        """
        Args:
            stacks: of each parameter the deltas of all clients: (clients, *shape).

        Returns:
            One for each client, float64.
        """
        count = len(stacks[0])
        squares = torch.zeros(count, count, dtype=torch.float64)
        for stack in stacks:
            flat = stack.double().reshape(count, stack[0].numel())
            # not by products of norms, whose differences lose what is small
            for client in range(count - 1):
                apart = (flat[client + 1 :] - flat[client]).square().sum(dim=1)
                squares[client, client + 1 :] += apart
                squares[client + 1 :, client] += apart
        nearest = count - self._liars - 2
        return squares.sort(dim=1).values[:, 1 : 1 + nearest].sum(dim=1)  # the first is its own

    def _combined(self, updates: Sequence[Update], stacks: Sequence[Tensor]) -> list[Tensor]:
        chosen = len(updates) - self._liars - 2 if self._chosen is None else self._chosen
        best = self.scores(stacks).sort(stable=True).indices[:chosen].sort().values
        return [stack[best].mean(dim=0) for stack in stacks]


class NormClipping(Defence):
    """The mean by samples of deltas that are shortened to a norm: Δ min(1, norm / ||Δ||), of all its parameters
    together. Bounds what one client can do, and holds against no majority of weight.

    Sun et al., "Can You Really Backdoor Federated Learning?", arXiv:1911.07963. Differs: the norm may be that of the
    round, and no noise is added.

    Args:
        norm: Largest norm of a delta; null: the round's median. Euclidean, in the unit of deltas.

    Raises:
        ValueError: it is not above 0 and finite.
    """

    def __init__(self, *, norm: Positive | None = None) -> None:
        self._norm = norm

    def _combined(self, updates: Sequence[Update], stacks: Sequence[Tensor]) -> list[Tensor]:
        squares = [stack.square().reshape(len(stack), stack[0].numel()).sum(dim=1) for stack in stacks]
        norms = torch.stack(squares).sum(dim=0).sqrt()
        most = _middle(norms, (len(norms) - 1) // 2) if self._norm is None else torch.tensor(self._norm).double()
        shortened = torch.where(norms > most, most / norms, 1.0)
        shares = torch.tensor(BySamples().coefficients(updates), dtype=torch.float64) * shortened
        return [torch.tensordot(shares, stack, dims=1) for stack in stacks]


def _middle(stack: Tensor, trimmed: int) -> Tensor:
    """The mean of each coordinate without so many at either end."""
    return stack.sort(dim=0).values[trimmed : len(stack) - trimmed].mean(dim=0)
