"""How K-FAC's factors and results travel: fused sums to all or to an owner, and broadcasts from owners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from compressors.base import Layout
from testbed.worker.clock import WAITING, PhaseClock
from testbed.worker.collectives import chain
from testbed.worker.collectives.transport import Peers
from testbed.worker.comm import Communicator, Pending
from testbed.worker.reducer import Reducer


class Sums(ABC):
    """Means of flat tensors over all ranks; `start` is called in one order on all of them."""

    @abstractmethod
    def start(self, flat: Tensor, group: int, owner: int | None, step: int) -> None:
        """
        Args:
            group: its number, always the same.
            owner: who needs the mean; None: all.
        """

    @abstractmethod
    def finish(self) -> None:
        """Whoever needs a mean has it afterwards, in place."""


class UncalibratedReducer(Reducer):
    """Its compressor is not the run's, so that no device knows its times: they are those of this machine."""

    def _codec(self, name: str, elements: int, round_: int) -> AbstractContextManager[None]:
        return self.clock.phase(name)


class ToAll(Sums):
    """By the all-reduce, or whatever else a compressor asks for."""

    def __init__(self, reducer: Reducer) -> None:
        self._reducer = reducer

    def start(self, flat: Tensor, group: int, owner: int | None, step: int) -> None:
        del owner
        self._reducer.start(flat, Layout(((flat.numel(),),), group), step)

    def finish(self) -> None:
        self._reducer.finish()


class ToOwners(Sums):
    """By a pipelined chain that ends at the owner: half of an all-reduce's bytes.

    Args:
        dtype: in which they travel and are summed.
    """

    def __init__(self, comm: Communicator, clock: PhaseClock, dtype: torch.dtype) -> None:
        self._comm, self._clock, self._dtype = comm, clock, dtype
        self._under_way: list[tuple[Tensor, Tensor, Pending, int]] = []

    def start(self, flat: Tensor, group: int, owner: int | None, step: int) -> None:
        assert owner is not None
        if not is_shared(self._comm):
            return
        with self._clock.phase("compress"):
            sent = flat.to(self._dtype)
        self._clock.mark()
        pending = _submit(self._comm, "reduction", sent, owner, chain.reduce)
        self._under_way.append((flat, sent, pending, owner))

    def finish(self) -> None:
        for flat, sent, pending, owner in self._under_way:
            with self._clock.phase(WAITING):
                pending.wait()
            if owner == self._comm.rank:
                with self._clock.phase("decompress"):
                    flat.copy_(sent).div_(self._comm.world_size)
        self._under_way.clear()


class Nowhere(Sums):
    """Each rank goes by its own samples."""

    def start(self, flat: Tensor, group: int, owner: int | None, step: int) -> None:
        return

    def finish(self) -> None:
        return


class Broadcasts:
    """From owners to all, each by a pipelined chain, one owner after another."""

    def __init__(self, comm: Communicator, clock: PhaseClock, sizes: Sequence[int]) -> None:
        """
        Args:
            sizes: elements that each rank has to send; 0: nothing.
        """
        self._comm, self._clock = comm, clock
        self.flats = [torch.zeros(size) for size in sizes]
        """By owner."""
        self._under_way: list[Pending] = []

    def start(self) -> None:
        if not is_shared(self._comm):
            return
        self._clock.mark()
        for owner, flat in enumerate(self.flats):
            if flat.numel():
                self._under_way.append(_submit(self._comm, "broadcast", flat, owner, chain.broadcast))

    def finish(self) -> None:
        for pending in self._under_way:
            with self._clock.phase(WAITING):
                pending.wait()
        self._under_way.clear()


def is_shared(comm: Communicator) -> bool:
    """Whether there is anybody else."""
    return comm.networked and comm.world_size > 1


def _submit(
    comm: Communicator, what: str, flat: Tensor, root: int, collective: Callable[[Peers, Tensor, int], None]
) -> Pending:
    def run(peers: Peers) -> list[Tensor]:
        collective(peers, flat, root)
        return [flat]

    return comm.submit(f"{what} of {flat.nbytes} bytes, of rank {root}", run)
