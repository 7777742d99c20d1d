"""Which samples each client has, and in which batches it takes them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from testbed.core.parameters import raise_all, whole


class Population:
    """The same on all ranks.

    Args:
        parts: of each client the numbers of its samples, one or more.
        batch_size: of a step; the last one of an epoch takes what is left.
        epochs: of a client in a round.
        seed: of the run.
        least_batch: where less is left than that, the batch before takes it along; a client that has less altogether
            takes no step. 2 where a model normalises over batches, which torch refuses to do over one sample.

    Raises:
        ValueError: a parameter is out of its range, or a client has no sample.
    """

    def __init__(
        self, parts: Sequence[Sequence[int]], *, batch_size: int, epochs: int, seed: int, least_batch: int = 1
    ) -> None:
        raise_all(
            whole("batch_size", batch_size, least_batch),
            whole("epochs", epochs, 1),
            *(None if part else f"client {client}: has no sample" for client, part in enumerate(parts)),
        )
        self._parts = [torch.tensor(part, dtype=torch.int32) for part in parts]
        self._batch_size, self.epochs, self._seed, self._least_batch = batch_size, epochs, seed, least_batch

    def __len__(self) -> int:
        return len(self._parts)

    def samples(self, client: int) -> int:
        return len(self._parts[client])

    def steps(self, client: int) -> int:
        """Of a round."""
        return self.epochs * len(self._sizes(client))

    def can_train(self, client: int) -> bool:
        """Whether it takes a step at all."""
        return self.samples(client) >= self._least_batch

    def batches(self, client: int, round_: int) -> Iterator[Tensor]:
        """Numbers of the samples of each step: in each epoch all, in another order, whoever runs the client."""
        part = self._parts[client]
        for epoch in range(self.epochs):
            order = list(range(len(part)))
            random.Random(f"batches {self._seed} {client} {round_} {epoch}").shuffle(order)
            sizes = self._sizes(client)
            yield from part[torch.tensor(order)[: sum(sizes)]].long().split(sizes)

    def _sizes(self, client: int) -> list[int]:
        """Of the batches of an epoch."""
        if not self.can_train(client):
            return []
        full, rest = divmod(self.samples(client), self._batch_size)
        sizes = [self._batch_size] * full
        if rest >= self._least_batch:
            return [*sizes, rest]
        return [*sizes[:-1], self._batch_size + rest] if rest else sizes
