"""The mean of what clients have sent, weighted by their samples, the same bits in whatever order they arrive."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from compressors.base.payload import NonFiniteError
from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE, PARAMETER, Schema


class Average:
    """McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
    arXiv:1602.05629: the sum of weight * tensor over the sum of weights, of the clients that have sent something.

    Summed in float64 in the order of the clients' numbers, whatever the order of arrival: a client's tensors wait until
    all those before it are there. Who is not there at the end is not in the mean, with neither tensors nor weight. What
    is discrete is the heaviest client's (see `Schema`). Keeps 8 bytes an element, and the tensors that wait.

    Args:
        clients: who may come; the first of them need not wait. Empty: anybody, and all wait until the end.
    """

    def __init__(self, schema: Schema, clients: Sequence[int] = ()) -> None:
        self._schema, self._clients = schema, sorted(clients)
        self._waiting: dict[int, Sequence[Tensor]] = {}
        self._next = 0
        self.weights: dict[int, float] = {}
        """Of those that are in it."""
        self._sums = [
            None if item.kind == DISCRETE else torch.zeros(item.shape, dtype=torch.float64) for item in schema.items
        ]
        self._heaviest: list[Tensor | None] = []
        self._closed = False

    def add(self, client: int, weight: float, tensors: Sequence[Tensor]) -> None:
        """
        Args:
            weight: samples it has trained on.
            tensors: what was decoded of its message; not to be changed afterwards.

        Raises:
            ValueError: the weight is not above 0, the client has sent already or is not expected, the mean has been
                taken, or the tensors are not the schema's.
        """
        if self._closed or client in self.weights or (self._clients and client not in self._clients):
            known = "has sent twice" if client in self.weights else "is not expected"
            raise ValueError(f"client {client} {'comes after the mean was taken' if self._closed else known}")
        if not 0 < weight < math.inf:
            raise ValueError(f"client {client}: a weight of {weight:g}; must be above 0 and finite")
        self._schema.require(tensors, f"client {client}")
        first = min(self.weights, key=lambda known: (-self.weights[known], known), default=None)
        if first is None or (-weight, client) < (-self.weights[first], first):
            kinds = [item.kind for item in self._schema.items]
            self._heaviest = [t if kind == DISCRETE else None for kind, t in zip(kinds, tensors, strict=True)]
        self.weights[client] = weight
        self._waiting[client] = tensors
        while self._next < len(self._clients) and self._clients[self._next] in self._waiting:
            self._fold(self._clients[self._next])
            self._next += 1

    def mean(self) -> list[Tensor]:
        """One tensor for each item: parameters float32 where they are halves, all else in its own type.

        Raises:
            RunError: no client has sent anything.
            NonFiniteError: a buffer is infinite in one way here and in the other there.
        """
        if not self.weights:
            raise RunError("no client's message of this round could be used; there is nothing to average")
        self._closed = True
        for client in sorted(self._waiting):
            self._fold(client)
        total = math.fsum(self.weights.values())
        found = []
        for index, (item, summed) in enumerate(zip(self._schema.items, self._sums, strict=True)):
            if summed is None:
                heaviest = self._heaviest[index]
                assert heaviest is not None, "kept of the client with most samples"
                found.append(heaviest.clone())
                continue
            value = (summed / total).to(item.wide if item.kind == PARAMETER else item.dtype)
            if value.isnan().any():
                raise NonFiniteError(f"{item.name}: has no mean; clients have it infinite in both ways")
            found.append(value)
        return found

    def _fold(self, client: int) -> None:
        weight = self.weights[client]
        for summed, tensor in zip(self._sums, self._waiting.pop(client), strict=True):
            if summed is not None:
                summed.add_(tensor, alpha=weight)
