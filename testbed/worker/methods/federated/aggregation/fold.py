"""What a round's clients have sent, combined as it arrives, so that of many clients none is kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from testbed.core.parameters import raise_all
from testbed.worker.methods.federated.aggregation.weighting import Sent, Weighting


@dataclass(frozen=True, kw_only=True, eq=False)
class Update(Sent):
    """Of one client in one round."""

    delta: Sequence[Tensor]
    """Of each parameter what it has become less what the server sent; buffers are no business of these rules. For
    SCAFFOLD those of the control variate come after them."""


class Fold:
    """The sum of coefficient * delta, in float64; 8 bytes an element.

    The same bits for the same order of clients; floats do not add up alike in another one.
    """

    def __init__(self, weighting: Weighting) -> None:
        self._weighting = weighting
        self._sums: list[Tensor] = []
        self.sent: list[Sent] = []
        """By whom, in order."""

    def add(self, update: Update) -> None:
        """
        Raises:
            ValueError: its tensors have not the shapes of those before, or are not finite; nothing is added.
        """
        require_alike(self._sums or update.delta, update.delta, f"client {update.client}")
        factor = self._weighting.factor(update)
        if self._sums:
            for total, tensor in zip(self._sums, update.delta, strict=True):
                total.add_(tensor, alpha=factor)
        else:
            self._sums = [tensor.to(torch.float64, copy=True).mul_(factor) for tensor in update.delta]
        self.sent.append(Sent(**{one.name: getattr(update, one.name) for one in fields(Sent)}))

    def total(self) -> list[Tensor]:
        """
        Raises:
            ValueError: nobody has sent anything.
        """
        if not self.sent:
            raise ValueError("no client has sent anything; there is nothing to combine")
        scale = self._weighting.scale(self.sent)
        return [total * scale for total in self._sums]


def in_order(updates: Iterable[Update]) -> list[Update]:
    """By the clients' numbers, so that what is made of them is the same to the bit whoever was first.

    Raises:
        ValueError: a client is there twice.
    """
    found = sorted(updates, key=lambda update: update.client)
    for one, other in itertools.pairwise(found):
        if one.client == other.client:
            raise ValueError(f"client {one.client} has sent twice")
    return found


def combined(weighting: Weighting, updates: Iterable[Update]) -> list[Tensor]:
    """The whole of a round, the same bits in any order.

    Raises:
        ValueError: as of `Fold` and `in_order`.
    """
    fold = Fold(weighting)
    for update in in_order(updates):
        fold.add(update)
    return fold.total()


def require_alike(first: Sequence[Tensor], tensors: Sequence[Tensor], who: str) -> None:
    """
    Raises:
        ValueError: `tensors` have not the shapes of `first`, or are not finite; all of them, one a line.
    """
    require_shapes(first, tensors, who)
    finite = [bool(tensor.isfinite().all()) for tensor in tensors]
    raise_all(*(f"{who}: tensor {index} is not finite" for index, good in enumerate(finite) if not good))


def require_shapes(first: Sequence[Tensor], tensors: Sequence[Tensor], who: str) -> None:
    """
    Raises:
        ValueError: `tensors` have not the shapes of `first`.
    """
    wanted, found = [tuple(tensor.shape) for tensor in first], [tuple(tensor.shape) for tensor in tensors]
    if wanted != found:
        raise ValueError(f"{who}: tensors of shapes {found}; must be of {wanted}, as those before")
