"""What clients that lie send instead of their updates, to try defences with.

They see what they themselves would have sent, and what the others among them would have, never what honest ones do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from testbed.core.declaration import Declared
from testbed.core.kinds import Number, Whole
from testbed.core.parameters import Count, NotNegative, Positive, raise_all, whole


class Attack(Declared, ABC):
    colludes: ClassVar[bool] = False
    """Whether what one sends hangs on what the others have learnt, so that one alone does nothing."""

    @abstractmethod
    def sent(self, honest: Sequence[Sequence[Tensor]], generator: torch.Generator) -> list[list[Tensor]]:
        """
        Args:
            honest: of each attacker the deltas that its training came to.
            generator: for what is random.

        Returns:
            Of each attacker what it sends, in the same types.
        """


class SignFlip(Attack):
    """-scale times its delta. Li et al., "RSA: Byzantine-Robust Stochastic Aggregation Methods", AAAI 2019,
    arXiv:1811.03761.

    Args:
        scale: Factor.

    Raises:
        ValueError: it is not.
    """

    def __init__(self, *, scale: Positive = 1.0) -> None:
        self._scale = scale

    def sent(self, honest: Sequence[Sequence[Tensor]], generator: torch.Generator) -> list[list[Tensor]]:
        return [[-self._scale * tensor for tensor in one] for one in honest]


class Gaussian(Attack):
    """Noise in the place of all that was learnt. Blanchard et al., "Machine Learning with Adversaries: Byzantine
    Tolerant Gradient Descent", NeurIPS 2017, in their experiments.

    Args:
        deviation: Standard deviation, in the unit of deltas.

    Raises:
        ValueError: it is not above 0 and finite.
    """

    def __init__(self, *, deviation: Positive = 1.0) -> None:
        self._deviation = deviation

    def sent(self, honest: Sequence[Sequence[Tensor]], generator: torch.Generator) -> list[list[Tensor]]:
        return [
            [torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) * self._deviation for tensor in one]
            for one in honest
        ]


class SameValue(Attack):
    """The same number everywhere. Li et al., AAAI 2019, arXiv:1811.03761.

    Args:
        value: Value of every element.

    Raises:
        ValueError: it is not finite.
    """

    def __init__(self, *, value: Annotated[float, Number(above=-math.inf, below=math.inf)] = 1.0) -> None:
        self._value = value

    def sent(self, honest: Sequence[Sequence[Tensor]], generator: torch.Generator) -> list[list[Tensor]]:
        return [[torch.full_like(tensor, self._value) for tensor in one] for one in honest]


class LittleIsEnough(Attack):
    """All send mean - z * standard deviation of each coordinate, both of their own deltas: so little aside that honest
    clients lie further out, and yet all to one side.

    Baruch et al., "A Little Is Enough: Circumventing Defenses For Distributed Learning", NeurIPS 2019,
    arXiv:1902.06156. Deviations are those of the population; a single attacker knows none, and sends its
    own delta.

    Args:
        clients: Clients of a round, with the attackers.
        attackers: Attackers among them, fewer than half.
        z: Deviations from the mean; null: `most_deviations`.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    colludes = True

    def __init__(self, *, clients: Annotated[int, Whole(3)], attackers: Count, z: NotNegative | None = None) -> None:
        raise_all(*_faults(clients, attackers))
        self.z = most_deviations(clients, attackers) if z is None else z

    def sent(self, honest: Sequence[Sequence[Tensor]], generator: torch.Generator) -> list[list[Tensor]]:
        moved = []
        for tensors in zip(*honest, strict=True):
            stack = torch.stack(tensors).double()
            moved.append((stack.mean(dim=0) - self.z * stack.std(dim=0, correction=0)).to(tensors[0].dtype))
        return [[tensor.clone() for tensor in moved] for _ in honest]


def most_deviations(clients: int, attackers: int) -> float:
    """z: with s = floor(n / 2 + 1) - f honest clients further out than they are, the attackers are the majority's side;
    so many are if Phi(z) = (n - f - s) / (n - f), of n clients and f attackers. At least 0, which a single attacker
    among an even number does not reach. Also in use is (n - s) / n, which goes further: give it as `z`.

    Raises:
        ValueError: there are fewer than 3 clients, or not fewer than half of them attack; all of it, one a line.
    """
    raise_all(*_faults(clients, attackers))
    honest = clients - attackers
    supporters = clients // 2 + 1 - attackers
    return max(NormalDist().inv_cdf((honest - supporters) / honest), 0.0)


def _faults(clients: int, attackers: int) -> Iterator[str | None]:
    few = whole("clients", clients, 3)
    yield few
    yield whole("attackers", attackers, 1, None if few else (clients - 1) // 2)
