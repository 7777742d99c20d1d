"""How much each client counts in a round: by its samples, alike, by its steps, or the less the later it comes.

A round's clients are combined to the sum of coefficient * delta. A coefficient is a factor that is known when a
client's message arrives, times one that all of them share and that is known at the end: so none has to be kept.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.declaration import Declared
from testbed.core.parameters import NotNegative, Positive, fraction, number, raise_all, whole


@dataclass(frozen=True, kw_only=True, eq=False)
class Sent:
    """What a client says beside its tensors.

    Raises:
        ValueError: a number is out of its range; all of them, one a line.
    """

    client: int
    weight: float = 1.0
    """Samples it has, or has trained on."""
    steps: float = 1.0
    """It has taken: see `normalised_steps`."""
    staleness: int = 0
    """Versions of the model that the server has made since the one that the client began with."""

    def __post_init__(self) -> None:
        who = f"client {self.client}:"
        raise_all(
            whole("client", self.client, 0),
            number(f"{who} weight", self.weight, above=0, below=math.inf),
            number(f"{who} steps", self.steps, above=0, below=math.inf),
            whole(f"{who} staleness", self.staleness, 0),
        )


class Weighting(Declared, ABC):
    @abstractmethod
    def factor(self, one: Sent) -> float:
        """Of this client alone."""

    @abstractmethod
    def scale(self, all_: Sequence[Sent]) -> float:
        """Of all, once they are there."""

    def coefficients(self, all_: Sequence[Sent]) -> list[float]:
        """What each delta is multiplied by.

        Raises:
            ValueError: nobody has sent anything.
        """
        if not all_:
            raise ValueError("no client has sent anything; there is nothing to combine")
        scale = self.scale(all_)
        return [self.factor(one) * scale for one in all_]


class BySamples(Weighting):
    """n_k / n. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
    2017, arXiv:1602.05629."""

    def factor(self, one: Sent) -> float:
        return one.weight

    def scale(self, all_: Sequence[Sent]) -> float:
        return 1 / math.fsum(one.weight for one in all_)


class Alike(Weighting):
    """1 / |S|."""

    def factor(self, one: Sent) -> float:
        return 1.0

    def scale(self, all_: Sequence[Sent]) -> float:
        return 1 / len(all_)


class ByProgress(Weighting):
    """tau p_k / a_k, with p_k = n_k / n, a_k the steps of a client as they count, and tau those that the server takes,
    the mean of a_k by p_k unless it is given: who takes more steps does not pull the model to its own optimum.

    Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
    arXiv:2007.07481 (FedNova), with delta_k in the place of -eta ||a_k||_1 d_k.

    Args:
        effective_steps: tau; None: the mean of the round's clients.

    Raises:
        ValueError: it is not above 0 and finite.
    """

    def __init__(self, *, effective_steps: Positive | None = None) -> None:
        self._effective_steps = effective_steps

    def factor(self, one: Sent) -> float:
        return one.weight / one.steps

    def scale(self, all_: Sequence[Sent]) -> float:
        total = math.fsum(one.weight for one in all_)
        if self._effective_steps is not None:
            return self._effective_steps / total
        return math.fsum(one.weight * one.steps for one in all_) / total**2


class ByStaleness(Weighting):
    """(1 + staleness)^-exponent / |S|. Their sum is below 1 where somebody is late: the step is shorter.

    Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, arXiv:2106.06639
    (FedBuff), with an exponent of 1/2; Xie et al., "Asynchronous Federated Optimization", arXiv:1903.03934, has the
    family.

    Args:
        exponent: 0: all alike.

    Raises:
        ValueError: it is below 0 or not finite.
    """

    def __init__(self, *, exponent: NotNegative = 0.5) -> None:
        self._exponent = exponent

    def factor(self, one: Sent) -> float:
        return float((1 + one.staleness) ** -self._exponent)

    def scale(self, all_: Sequence[Sent]) -> float:
        return 1 / len(all_)


def normalised_steps(steps: int, *, momentum: float = 0.0, shrink: float = 0.0) -> float:
    """How often gradients of a client are in its delta, in units of the learning rate (||a||_1 of FedNova).

    Plain SGD: `steps`. With momentum rho, without dampening or Nesterov's: (steps - rho (1 - rho^steps) / (1 - rho)) /
    (1 - rho). With FedProx's term, each step of which multiplies what was before by 1 - `shrink`:
    (1 - (1 - shrink)^steps) / shrink.

    Args:
        momentum: in [0, 1), from 0 at the beginning of the round.
        shrink: learning rate times mu, in [0, 1).

    Raises:
        ValueError: a parameter is out of its range, or both are above 0; all of them, one a line.
    """
    raise_all(
        whole("steps", steps, 1),
        fraction("momentum", momentum),
        fraction("shrink", shrink),
        f"momentum={momentum}, shrink={shrink}: the paper has no sum for both; use one"
        if momentum and shrink
        else None,
    )
    if momentum:
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    return -math.expm1(steps * math.log1p(-shrink)) / shrink if shrink else float(steps)
