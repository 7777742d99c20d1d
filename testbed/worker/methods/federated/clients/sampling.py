"""Who takes part in a round: so many clients at random, without replacement."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence

from testbed.core.parameters import raise_all, share, whole


class Sampling:
    """Anew in each round, whatever was before: nothing is kept, and a run that goes on chooses as if it never stopped.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
    arXiv:1602.05629, algorithm 1: max(C K, 1) of K clients, all equally likely. Differs: C K is rounded; the seed is of
    the run and of the round, so that two seeds differ in every round.

    Args:
        count: so many, or all where there are fewer.
        fraction: of those that are known, in (0, 1], at least one (C). One of the two is given.
        seed: of the run.

    Raises:
        ValueError: a parameter is not one of these; all of them, one a line.
    """

    def __init__(self, *, count: int | None = None, fraction: float | None = None, seed: int = 0) -> None:
        raise_all(
            None if (count is None) != (fraction is None) else f"count={count}, fraction={fraction}: give one of both",
            None if count is None else whole("count", count, 1),
            None if fraction is None else share("fraction", fraction),
            whole("seed", seed, 0),
        )
        self._count, self._fraction, self._seed = count, fraction, seed

    def wanted(self, known: int) -> int:
        """Clients of a round, of so many."""
        if self._fraction is not None:
            return max(round(self._fraction * known), 1)
        assert self._count is not None
        return self._count

    def choose(
        self, round_: int, available: Collection[int], known: int, weights: Mapping[int, float] | None = None
    ) -> list[int]:
        """
        Args:
            round_: counted from 0.
            available: clients that may be chosen; in any order, which makes no difference.
            known: all clients there are, of which `fraction` is a part.
            weights: of the available clients, such as their samples: one of twice the weight is twice as likely to be
                the first that is drawn, and so on with those that are left. None: all alike.

        Returns:
            Ascending; fewer than wanted where fewer are available.

        Raises:
            ValueError: a weight is missing, or not above 0 and finite; all of them, one a line.
        """
        chance = random.Random(f"clients {self._seed} {round_}")
        clients = sorted(available)
        count = min(self.wanted(known), len(clients))
        if weights is None:
            return sorted(chance.sample(clients, count))
        return sorted(weighted_sample(clients, weights, count, chance))


def weighted_sample(
    clients: Sequence[int], weights: Mapping[int, float], count: int, chance: random.Random
) -> list[int]:
    """`count` different clients, as if drawn one after the other, each time by weight among those that are left.

    Efraimidis and Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97 (2006),
    doi 10.1016/j.ipl.2005.11.003: those with the largest U^(1/weight). How likely a client is among them is not
    proportional to its weight, unless it is one that is drawn.

    Raises:
        ValueError: a weight is missing, or not above 0 and finite; all of them, one a line.
    """
    raise_all(
        *(
            f"client {client}: a weight of {weights.get(client)}; must be above 0 and finite"
            for client in clients
            if not 0 < weights.get(client, 0) < math.inf
        )
    )
    # an exponential variate of rate `weight` is -log(U) / weight
    first = {client: -math.log(1.0 - chance.random()) / weights[client] for client in clients}
    return sorted(clients, key=lambda client: (first[client], client))[:count]
