"""Base class of workloads whose samples have numbers, and the order in which these are drawn."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from testbed.core.errors import InputError
from testbed.worker.interfaces.partition import Partition
from testbed.worker.interfaces.schedule import CONSTANT, factor_at
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.interfaces.workload_capabilities import labels_of


class Shuffle:
    """The order of samples: one permutation per epoch, joined end to end, cut into global batches.

    Args:
        left: Numbers of the samples, as many as `samples`, if they are not all those below it.
    """

    def __init__(self, samples: int, seed: int, left: Tensor | None = None) -> None:
        self.samples = samples
        self.seed = seed
        self._left = left
        self._epochs: dict[int, Tensor] = {}

    def indices(self, step: int, *, rank: int, world_size: int, batch_size: int) -> Tensor:
        """Return the samples of `rank` in global batch `step`: (batch_size,) int64."""
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
    """Base of workloads whose training samples have numbers, from 0, and are drawn in the order of a `Shuffle`.

    Args:
        partition: Division of the samples; null: all ranks draw from all.
        schedule: Learning rate: constant, or falling linearly to 2 %.
        warm_up_steps: Steps in which the learning rate rises at first.
    """

    partition: Partition | None = None
    """Division by which each of several ranks keeps samples of its own; None: all draw from all."""
    schedule: str = CONSTANT
    warm_up_steps: int = 0
    _shuffle: Shuffle | None = None
    _own: tuple[tuple[int, int, int], Shuffle] | None = None
    """Order of one rank's samples, with (seed, rank, number of ranks)."""
    _left: Tensor | None = None
    """Numbers of the samples that are not held out, if some are."""

    @abstractmethod
    def picked(self, numbers: Tensor) -> Batch:
        """Return training samples by their numbers, as `evaluate` would see them."""

    def rate_factor(self, step: int, steps: int) -> float:
        """Return what learning rates are multiplied by in `step` of `steps`."""
        return factor_at(step, steps, self.schedule, self.warm_up_steps)

    def left(self) -> Tensor:
        """Return the numbers of the samples that are not held out, ascending."""
        return torch.arange(self.samples()) if self._left is None else self._left.sort().values

    def numbers(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Tensor:
        """Return the numbers of the samples of `batch`, which takes the same arguments."""
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
        """Return the order of the samples that `rank` has by the partition; its epoch ends when it had all of them.

        Raises:
            InputError: The partition cannot divide them among that many ranks.
        """
        asked = (seed, rank, world_size)
        if self._own is None or self._own[0] != asked:
            assert self.partition is not None
            left = self.left()
            try:
                parts = self.partition.divide(labels_of(self)[left].tolist(), world_size, seed)
            except ValueError as error:
                raise InputError(*(f"workload.partition: {line}" for line in str(error).splitlines())) from error
            self._own = asked, Shuffle(len(parts[rank]), seed, left[parts[rank]])
        return self._own[1]
