"""Which samples each client has, and in which batches it takes them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from testbed.core.parameter_faults import raise_all, whole


class Population:
    """The same on all ranks.

    Args:
        parts: of each client the numbers of its samples, one or more.
        batch_size: of a step; the last one of an epoch takes what is left.
        epochs: of a client in a round.
        seed: of the run.

    Raises:
        ValueError: a parameter is out of its range, or a client has no sample.
    """

    def __init__(self, parts: Sequence[Sequence[int]], *, batch_size: int, epochs: int, seed: int) -> None:
        raise_all(
            whole("batch_size", batch_size, 1),
            whole("epochs", epochs, 1),
            *(None if part else f"client {client}: has no sample" for client, part in enumerate(parts)),
        )
        self._parts = [torch.tensor(part, dtype=torch.int32) for part in parts]
        self._batch_size, self.epochs, self._seed = batch_size, epochs, seed

    def __len__(self) -> int:
        return len(self._parts)

    def samples(self, client: int) -> int:
        return len(self._parts[client])

    def steps(self, client: int) -> int:
        """Of a round."""
        return self.epochs * math.ceil(self.samples(client) / self._batch_size)

    def batches(self, client: int, round_: int) -> Iterator[Tensor]:
        """Numbers of the samples of each step: in each epoch all, in another order, whoever runs the client."""
        part = self._parts[client]
        for epoch in range(self.epochs):
            order = list(range(len(part)))
            random.Random(f"batches {self._seed} {client} {round_} {epoch}").shuffle(order)
            yield from part[torch.tensor(order)].long().split(self._batch_size)
