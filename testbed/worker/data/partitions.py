"""Who has which samples: labelled ones divided among clients, evenly or in skewed ways."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import TypeVar

from testbed.core.parameters import Count, Positive
from testbed.worker.interfaces.partition import Partition

T = TypeVar("T")

_MIN_ALPHA, _MAX_ALPHA = 1e-300, 1e12
"""Below the one each label has one client, above the other shares differ by less than one sample in a million. Between
them the logarithms of gamma variates are finite."""


class Iid(Partition):
    """All samples at random, in parts whose sizes differ by one at most. McMahan et al., "Communication-Efficient
    Learning of Deep Networks from Decentralized Data", AISTATS 2017, arXiv:1602.05629, section 3."""

    uses_labels = False

    def _divide(self, labels: Sequence[int], clients: int, chance: random.Random) -> list[list[int]]:
        return _even(_shuffled(range(len(labels)), chance), clients)


class Dirichlet(Partition):
    """Of each label the clients' shares are drawn from a symmetric Dirichlet distribution: the lower `alpha`, the fewer
    clients have most of a label. Sizes are skewed too.

    Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", ICML 2019, arXiv:1905.12022, in
    their experiments. Differs: clients with too few samples get some of others (see `Partition`), where implementations
    draw anew until nobody has too few, which for a low alpha or many clients is never; shares come from logarithms of
    gamma variates (for alpha < 1 that of alpha + 1, times U^(1/alpha)), since at an alpha of 0.001 about half of the
    variates are below the least float.
    Hsu et al., arXiv:1909.06335, draw labels' shares for each client instead, and all clients' sizes are equal.

    Args:
        alpha: Concentration; 0.1 to 0.5 are common, 100 nearly even.
    """

    def __init__(self, *, alpha: Positive = 0.3, least: Count = 1) -> None:
        self.alpha = alpha
        super().__init__(least=least)

    def _divide(self, labels: Sequence[int], clients: int, chance: random.Random) -> list[list[int]]:
        parts: list[list[int]] = [[] for _ in range(clients)]
        for label in sorted(set(labels)):
            samples = _shuffled([index for index, one in enumerate(labels) if one == label], chance)
            shares = dirichlet(self.alpha, clients, chance)
            ends = [round(len(samples) * end) for end in itertools.accumulate(shares)]
            ends[-1] = len(samples)  # rounding errors of the sum
            for part, begin, end in zip(parts, [0, *ends], ends, strict=False):
                part.extend(samples[begin:end])
        return parts


class Shards(Partition):
    """Samples sorted by label, cut into shards of equal size, of which each client gets so many at random: most clients
    have as many labels at most. McMahan et al., AISTATS 2017, arXiv:1602.05629, section 3, with two shards a client.

    Sizes of shards differ by one at most, where the paper's are equal; within a label, the order is random.

    Args:
        shards: Shards of one client.
    """

    def __init__(self, *, shards: Count = 2, least: Count = 1) -> None:
        self.shards = shards
        super().__init__(least=least)

    def _divide(self, labels: Sequence[int], clients: int, chance: random.Random) -> list[list[int]]:
        by_label = sorted(_shuffled(range(len(labels)), chance), key=lambda index: labels[index])
        shards = _shuffled(_even(by_label, clients * self.shards), chance)
        return [
            list(itertools.chain.from_iterable(shards[client * self.shards : (client + 1) * self.shards]))
            for client in range(clients)
        ]


class Natural(Partition):
    """All samples of a label have one client, as where labels are the people or places that samples come from.

    Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.

    With as many clients as labels, client i has label i of those that occur, ascending. With fewer, each has several
    labels, drawn at random, in numbers that differ by one at most.
    """

    def _divide(self, labels: Sequence[int], clients: int, chance: random.Random) -> list[list[int]]:
        samples: dict[int, list[int]] = {label: [] for label in sorted(set(labels))}
        for index, label in enumerate(labels):
            samples[label].append(index)
        if clients > len(samples):
            raise ValueError(
                f"clients={clients}: there are {len(samples)} labels, and each has one client; use at most"
                f" {len(samples)} clients, or another partition"
            )
        own = list(samples) if clients == len(samples) else _shuffled(list(samples), chance)
        return [list(itertools.chain.from_iterable(samples[one] for one in part)) for part in _even(own, clients)]


def dirichlet(alpha: float, count: int, chance: random.Random) -> list[float]:
    """`count` shares that sum to 1, of a symmetric Dirichlet distribution."""
    alpha = min(max(alpha, _MIN_ALPHA), _MAX_ALPHA)
    if alpha < 1:
        # Gamma(alpha) is Gamma(alpha + 1) U^(1/alpha); 1 - random() is never 0
        logs = [
            math.log(chance.gammavariate(alpha + 1, 1.0)) + math.log(1.0 - chance.random()) / alpha
            for _ in range(count)
        ]
    else:
        logs = [math.log(chance.gammavariate(alpha, 1.0)) for _ in range(count)]
    most = max(logs)
    weights = [math.exp(log - most) for log in logs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _shuffled(items: Sequence[T], chance: random.Random) -> list[T]:
    return chance.sample(items, len(items))


def _even(items: Sequence[T], count: int) -> list[list[T]]:
    """In order, in parts whose sizes differ by one at most."""
    ends = [len(items) * part // count for part in range(count + 1)]
    return [list(items[begin:end]) for begin, end in itertools.pairwise(ends)]
