"""Base class of workloads whose samples have numbers, and the order in which these are drawn."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from testbed.core.errors import InputError
from testbed.worker.interfaces.partition import Partition
from testbed.worker.interfaces.workload import Batch, Workload


class Shuffle:
    """The order of samples: one permutation per epoch, joined end to end, cut into global batches.

    Args:
        left: numbers of the samples there are, if they are not all those below `samples`, but as many.
    """

    def __init__(self, samples: int, seed: int, left: Tensor | None = None) -> None:
        self.samples = samples
        self.seed = seed
        self._left = left
        self._epochs: dict[int, Tensor] = {}

    def indices(self, step: int, *, rank: int, world_size: int, batch_size: int) -> Tensor:
        """Samples of `rank` in global batch `step`."""
        start = (step * world_size + rank) * batch_size
        positions = torch.arange(start, start + batch_size)
        epochs = positions // self.samples
        pieces = [self._epoch(int(e))[positions[epochs == e] % self.samples] for e in epochs.unique()]
        return torch.cat(pieces)

    def _epoch(self, epoch: int) -> Tensor:
        if epoch not in self._epochs:
            generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
            self._epochs = {e: order for e, order in self._epochs.items() if e == epoch - 1}
            order = torch.randperm(self.samples, generator=generator)
            self._epochs[epoch] = order if self._left is None else self._left[order]
        return self._epochs[epoch]


class NumberedWorkload(Workload):
    """One whose training samples have numbers, from 0, and are drawn in the order of a `Shuffle`.

    Args:
        partition: Division of the training samples, so that each rank has samples of its own; null: all draw from all.
    """

    can_hold_out = True
    partition: Partition | None = None
    """By which each of several ranks has samples of its own, for good; None: all draw from all."""
    _shuffle: Shuffle | None = None
    _own: tuple[tuple[int, int, int], Shuffle] | None = None
    """Of one rank's samples, with the seed, the rank and how many ranks there are."""
    _left: Tensor | None = None
    """Numbers of those that are not held out, if some are."""

    @abstractmethod
    def picked(self, numbers: Tensor) -> Batch:
        """These training samples, as `evaluate` would see them."""

    def left(self) -> Tensor:
        """Numbers of the samples that are not held out, ascending."""
        return torch.arange(self.samples()) if self._left is None else self._left.sort().values

    def numbers(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Tensor:
        """Of the samples of `batch`."""
        if self.partition is not None and world_size > 1:
            return self._own_shuffle(seed, rank, world_size).indices(step, rank=0, world_size=1, batch_size=batch_size)
        if self._shuffle is None or self._shuffle.seed != seed:
            samples = self.samples() if self._left is None else len(self._left)
            self._shuffle = Shuffle(samples, seed, self._left)
        return self._shuffle.indices(step, rank=rank, world_size=world_size, batch_size=batch_size)

    def hold_out(self, samples: int, seed: int) -> Batch:
        if samples >= (total := self.samples()):
            raise InputError(f"{samples} samples cannot be held out of {total}; some must be left to train on")
        order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
        self._left, self._shuffle, self._own = order[samples:], None, None
        return self.picked(order[:samples])

    def _own_shuffle(self, seed: int, rank: int, world_size: int) -> Shuffle:
        """Of the samples that `rank` has by the partition: an epoch of its own is over when it had all of them.

        Raises:
            InputError: the partition cannot divide them among so many.
        """
        asked = (seed, rank, world_size)
        if self._own is None or self._own[0] != asked:
            assert self.partition is not None
            left = self.left()
            try:
                parts = self.partition.divide(self.labels()[left].tolist(), world_size, seed)
            except ValueError as error:
                raise InputError(*(f"workload.partition: {line}" for line in str(error).splitlines())) from error
            self._own = asked, Shuffle(len(parts[rank]), seed, left[parts[rank]])
        return self._own[1]
