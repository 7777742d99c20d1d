"""Asynchronous rounds: clients send when they are done, and the server goes on when enough have."""

from __future__ import annotations

from torch import Tensor

from testbed.core.declaration import Declared
from testbed.core.parameters import Count, NotNegative
from testbed.worker.methods.federated.aggregation.fold import Fold, Update
from testbed.worker.methods.federated.aggregation.rules import FedAvg, Rule
from testbed.worker.methods.federated.aggregation.weighting import BySamples, ByStaleness

_FAULT = "rule={}: needs all clients of a round, or their steps; use FedAvg, FedAvgM, FedAdagrad, FedAdam or FedYogi"


class FedBuff(Declared):
    """w += eta_g / B * sum of (1 + staleness)^-1/2 * delta, of every B updates that arrive.

    Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, arXiv:2106.06639.
    A client may be in a buffer twice. Where nobody is late it is FedAvg in which all count alike. Differs:
    another rule than a learning rate may follow on the sum.

    Args:
        size: updates of a step (B, the paper's K).
        exponent: of the staleness.
        rule: what the sum is made into: one whose clients count by their samples, in the place of which staleness
            comes. None: FedAvg, with a learning rate of 1.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    def __init__(self, *, size: Count = 10, exponent: NotNegative = 0.5, rule: Rule | None = None) -> None:
        self.rule = FedAvg() if rule is None else rule
        if not isinstance(self.rule.weighting, BySamples):
            raise ValueError(_FAULT.format(type(self.rule).__name__))
        self.size = size
        self._weighting = ByStaleness(exponent=exponent)
        self._fold = Fold(self._weighting)
        self.version = 0
        """Of the model: how often it has changed."""

    def staleness(self, version: int) -> int:
        """Of an update that began with that version.

        Raises:
            ValueError: there is no such version yet.
        """
        if not 0 <= version <= self.version:
            raise ValueError(f"version={version}: must be one of 0 to {self.version}, which there have been")
        return self.version - version

    def add(self, update: Update) -> list[Tensor] | None:
        """In the order of arrival, on which bits depend.

        Returns:
            What is to be added to the server's parameters, in float64, if this is the last update of a step.

        Raises:
            ValueError: its tensors have not the shapes of those before, or are not finite; nothing has changed.
        """
        self.rule.require_known(update.delta)
        self._fold.add(update)
        if len(self._fold.sent) < self.size:
            return None
        fold, self._fold = self._fold, Fold(self._weighting)
        self.version += 1
        return self.rule.move(fold.total(), len(fold.sent))
