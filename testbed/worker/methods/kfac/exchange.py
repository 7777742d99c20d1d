"""How K-FAC's factors and results travel: fused sums to all or to an owner, and broadcasts from owners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout, Route
from compressors.base.payload import from_bytes, to_bytes
from testbed.core.costs.collective import scaled_chunk_bytes
from testbed.worker.communication.collectives import chain
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import Pending
from testbed.worker.communication.transport import Peers
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.reduction.reducer import Reducer


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
    """By a pipelined chain that ends at the owner: half of an all-reduce's bytes."""

    def __init__(self, codec: Compressor, context: WorkerContext) -> None:
        """
        Args:
            codec: whose payloads can be summed.
        """
        self._codec, self._comm, self._clock, self._spec = codec, context.comm, context.clock, context.spec
        self._under_way: list[tuple[Tensor, Tensor, Context, Pending, int]] = []

    def start(self, flat: Tensor, group: int, owner: int | None, step: int) -> None:
        assert owner is not None
        if not is_shared(self._comm):
            return
        codec, context = self._codec, self._context_of(flat, group, step)
        with self._clock.phase("compress"):
            assert codec.traits.sum_dtype is not None
            sent = flat if codec.traits.verbatim else from_bytes(codec.encode(flat, context), codec.traits.sum_dtype)
        pending = _submit(self._comm, "reduction", sent, owner, chain.reduce, scaled_chunk_bytes(self._spec.scale))
        self._under_way.append((flat, sent, context, pending, owner))

    def finish(self) -> None:
        for flat, sent, context, pending, owner in self._under_way:
            pending.wait()
            if owner != self._comm.rank:
                continue
            with self._clock.phase("decompress"):
                if sent is not flat:
                    self._codec.decode(to_bytes(sent), flat, context)
                flat.div_(self._comm.world_size)
        self._under_way.clear()

    def _context_of(self, flat: Tensor, group: int, step: int) -> Context:
        alpha_s, beta_s_byte = self._spec.topology.slowest_hop
        return Context(
            layout=Layout(((flat.numel(),),), group),
            route=Route.REDUCE_SUM,
            seed=self._spec.seed,
            step=step,
            rank=self._comm.rank,
            world_size=self._comm.world_size,
            alpha_s=alpha_s,
            beta_s_byte=beta_s_byte,
        )


class Nowhere(Sums):
    """Each rank goes by its own samples."""

    def start(self, flat: Tensor, group: int, owner: int | None, step: int) -> None:
        return

    def finish(self) -> None:
        return


class Broadcasts:
    """From owners to all, each by a pipelined chain, one owner after another."""

    def __init__(self, context: WorkerContext, sizes: Sequence[int]) -> None:
        """
        Args:
            sizes: elements that each rank has to send; 0: nothing.
        """
        self._comm, self._clock = context.comm, context.clock
        self._chunk_bytes = scaled_chunk_bytes(context.spec.scale)
        self.flats = [torch.zeros(size) for size in sizes]
        """By owner."""
        self._under_way: list[Pending] = []

    def start(self) -> None:
        if not is_shared(self._comm):
            return
        for owner, flat in enumerate(self.flats):
            if flat.numel():
                self._under_way.append(
                    _submit(self._comm, "broadcast", flat, owner, chain.broadcast, self._chunk_bytes)
                )

    def finish(self) -> None:
        for pending in self._under_way:
            pending.wait()
        self._under_way.clear()


def is_shared(comm: Communicator) -> bool:
    """Whether there is anybody else."""
    return comm.networked and comm.world_size > 1


def _submit(
    comm: Communicator, what: str, flat: Tensor, root: int, collective: Callable[..., None], chunk_bytes: float
) -> Pending:
    def run(peers: Peers) -> list[Tensor]:
        collective(peers, flat, root, chunk_bytes=chunk_bytes)
        return [flat]

    return comm.submit(f"{what} of {flat.nbytes} bytes, of rank {root}", run)
