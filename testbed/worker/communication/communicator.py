"""The communicator: everything that a worker sends passes through it, is counted, and is timed.

Only it, the rendezvous and the strategies that are torch's own import `torch.distributed`. One thread issues
collectives, in one order on all ranks (otherwise gloo gives wrong sums without an error); gloo's threads carry them.
"""

from __future__ import annotations

import datetime
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor

from compressors.base.compressor import Exchange
from testbed.worker.communication.pending import CollectiveError, Pending
from testbed.worker.communication.rendezvous import Rendezvous
from testbed.worker.communication.thread import CommunicationThread, Job
from testbed.worker.communication.transport import Collective, Nothing, Peers, Waitable
from testbed.worker.device.accelerator import Accelerator
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.stopwatch import Stopwatch

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name in torch before 2.13
_Issue = Callable[[], dist.Work | None]


class _AllRanks:
    """Peers of one collective of Longhaul's. Its number marks its messages, so that no other collective takes them."""

    def __init__(self, comm: Communicator, channel: int, number: int) -> None:
        self.index, self.size = comm.rank, comm.world_size
        self._comm, self._tag = comm, 1 + channel * 2**20 + number % 2**20  # 0 is that of `send` and `receive`

    def send(self, to: int, tensor: Tensor) -> Waitable:
        if not tensor.numel():
            return Nothing()
        self._comm.charge(tensor.nbytes)
        return dist.isend(tensor, to, tag=self._tag) or Nothing()

    def receive(self, source: int, tensor: Tensor) -> Waitable:
        if not tensor.numel():
            return Nothing()
        return dist.irecv(tensor, source, tag=self._tag) or Nothing()


class Communicator:
    """Collectives among all workers of a run: over gloo, or over NCCL for tensors on an accelerator.

    `payload_bytes` counts the bytes that this rank sent of the algorithm's data. For gloo's collectives they follow the
    ring formulas of `compressors.base.alpha_beta`, as whole bytes whose sum over ranks is exact; for Longhaul's own
    (`submit`) they are the bytes sent. `control_bytes` counts everything else. Neither counts rendezvous.
    A collective that fails raises CollectiveError, as it starts or from the `wait` of its `Pending`.
    """

    networked = True
    """True if there are other ranks to send to."""
    address = ""
    """IP address of rank 0, for connections apart from collectives; empty without a network."""
    is_back = False
    """True if this rank rejoined during the run. It calls no collectives: a process group cannot be joined late."""
    interface = ""
    """Network interface by which the others reach this rank; empty without a network."""
    rendezvous: Rendezvous | None = None
    accelerator = Accelerator()
    """Device on which this rank computes; tensors that it sends may lie there."""
    clock: PhaseClock | None = None
    """Clock that is told of each send, and of waits, which are exposed communication; None: nobody reads one. Used in
    its thread alone."""

    def __init__(self, rank: int, world_size: int, timeout_s: float) -> None:
        self.rank, self.world_size, self.timeout_s = rank, world_size, timeout_s
        self.step = -1
        """Step that error messages name, -1 before the first; the training loop sets it."""
        self.payload_bytes = 0
        self.control_bytes = 0
        self.stopwatch = Stopwatch()
        self._thread: CommunicationThread | None = None
        self._submitted = defaultdict[tuple[int, tuple[int, ...]], int](int)
        self._counting = threading.Lock()

    @classmethod
    def connect(
        cls,
        *,
        rank: int,
        world_size: int,
        address: str,
        port: int,
        interface: str,
        timeout_s: float,
        store: str = "",
        service: str = "",
        accelerator: Accelerator = accelerator,
    ) -> Communicator:
        """Meet the other ranks at a TCP store of rank 0, and return the communicator.

        Args:
            store: Path of a file that all ranks share, to meet at instead of a TCP store.
            service: Path of the socket of a run's rendezvous, to meet at instead of either.
            accelerator: Device of this rank; of the same kind on all ranks.

        Raises:
            CollectiveError: Not all ranks came within `timeout_s` wall seconds.
        """
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
        comm = cls(rank, world_size, timeout_s)
        comm.accelerator = accelerator
        comm.address, comm.interface = address, interface
        timeout = datetime.timedelta(seconds=timeout_s)
        try:
            comm.rendezvous = Rendezvous(
                *(rank, world_size), address=address, port=port, store=store, timeout_s=timeout_s, service=service
            )
            place, backend = comm.rendezvous.place, accelerator.backend
            dist.init_process_group(backend, store=place, rank=rank, world_size=world_size, timeout=timeout)
        except (RuntimeError, OSError) as error:
            raise comm.error(f"rendezvous at {service or store or f'{address}:{port}'}", error) from error
        return comm

    def close(self, *, together: bool = True) -> None:
        """Leave the process group, `together` with all ranks, or alone if some may have left already."""
        if together:
            self.barrier()
        if self._thread is not None:
            self._thread.close()
        if not self.is_back:
            dist.destroy_process_group()
        if self.rendezvous is not None:
            self.rendezvous.close()

    def run(self, exchange: Exchange) -> Pending:
        """Start the collective that a compressor asks for, with known sizes; return its pending result."""
        if exchange.kind == "all_reduce":
            return self.all_reduce(exchange.data[0], op=exchange.op)
        assert exchange.sizes is not None, "the reducer asks for sizes first"
        if exchange.kind == "all_gather":
            return self.all_gather(exchange.data[0], exchange.sizes)
        return self.all_to_all(exchange.data, exchange.sizes)

    def all_reduce(self, tensor: Tensor, *, op: str = "sum") -> Pending:
        """Start to sum `tensor` over ranks, or to take its maximum, in place; return it as pending."""
        if self.world_size == 1:
            return self._done([tensor])
        self.count(2 * (self.world_size - 1) * tensor.nbytes)
        sent = self.accelerator.to_host(tensor)
        return self._collective(
            f"all_reduce of {tensor.nbytes} bytes",
            lambda: dist.all_reduce(sent, _OPS[op], async_op=True),
            lambda: [self.accelerator.back(tensor, sent)],
        )

    def all_gather(self, payload: Tensor, sizes: Sequence[int]) -> Pending:
        """Start to gather payloads, padded to one size for gloo; return a pending (sizes[r],) uint8 of each rank r."""
        if self.world_size == 1:
            return self._done([payload])
        width = max(sizes)
        self.count(self.world_size * (self.world_size - 1) * width)
        padded = payload if len(payload) == width else torch.nn.functional.pad(payload, (0, width - len(payload)))
        gathered = torch.empty(self.world_size * width, dtype=torch.uint8, device=payload.device)
        sent, arrived = self.accelerator.to_host(padded), self.accelerator.beside(gathered)

        def pieces() -> list[Tensor]:
            self.accelerator.back(gathered, arrived)
            whole = gathered.split(width) if width else [gathered] * len(sizes)
            return [piece[:size] for piece, size in zip(whole, sizes, strict=True)]

        return self._collective(f"all_gather of {width} bytes", lambda: _gather(arrived, sent, async_op=True), pieces)

    def all_to_all(self, payloads: Sequence[Tensor], sizes: Sequence[int]) -> Pending:
        """Start to send `payloads[r]` to each rank r; return a pending (sizes[r],) uint8 from each."""
        if self.world_size == 1:
            return self._done(list(payloads))
        sent = [len(payload) for payload in payloads]
        self.charge(sum(sent) - sent[self.rank])
        flat = torch.cat(list(payloads))
        received = torch.empty(sum(sizes), dtype=torch.uint8, device=flat.device)
        ours, theirs = self.accelerator.to_host(flat), self.accelerator.beside(received)
        return self._collective(
            f"all_to_all of {sum(sent)} bytes",
            lambda: dist.all_to_all_single(theirs, ours, list(sizes), sent, async_op=True),
            lambda: list(self.accelerator.back(received, theirs).split(list(sizes))),
        )

    def exchange_sizes(self, sizes: Sequence[int]) -> Pending:
        """Start to tell each rank r `sizes[r]`; return a pending (world_size,) int64 of theirs. Control traffic."""
        ours = torch.tensor(sizes, dtype=torch.int64)
        if self.world_size == 1:
            return self._done([ours])
        self.control_bytes += 8 * (self.world_size - 1)
        theirs = torch.empty_like(ours)
        return self._collective(
            "exchange of sizes", lambda: dist.all_to_all_single(theirs, ours, async_op=True), lambda: [theirs]
        )

    def broadcast(self, tensor: Tensor, *, source: int = 0, control: bool = False) -> Pending:
        """Start to overwrite `tensor` with that of rank `source`; return it as pending. `control`: no payload."""
        if self.world_size == 1:
            return self._done([tensor])
        self.count((self.world_size - 1) * tensor.nbytes, control=control)
        sent = self.accelerator.to_host(tensor)
        return self._collective(
            f"broadcast of {tensor.nbytes} bytes",
            lambda: dist.broadcast(sent, source, async_op=True),
            lambda: [self.accelerator.back(tensor, sent)],
        )

    def send(self, payload: Tensor, *, to: int) -> Pending:
        """Start to send `payload`; return the pending message, whose time ends with `wait`: gloo tells no other end."""
        self.charge(payload.nbytes)
        sent = self.accelerator.to_host(payload)
        return self._message(f"send of {payload.nbytes} bytes to rank {to}", lambda: dist.isend(sent, to), list)

    def receive(self, payload: Tensor, *, source: int) -> Pending:
        """Start to fill `payload` from rank `source`; return it as pending."""
        sent = self.accelerator.beside(payload)
        back = self.accelerator.back
        return self._message(
            f"receive from rank {source}", lambda: dist.irecv(sent, source), lambda: [back(payload, sent)]
        )

    def submit(self, what: str, collective: Collective, *, channel: int = 0, among: tuple[int, ...] = ()) -> Pending:
        """Start a collective of Longhaul's own; return its pending result.

        Its ranks (all, or those `among` them) submit the same in one order. It shares gloo's connections, not the GIL.
        """
        if self._thread is None:
            self._thread = CommunicationThread()
        peers = _AllRanks(self, channel, self._submitted[channel, among])
        self._submitted[channel, among] += 1
        self._mark()
        end = self.stopwatch.start()
        job = self._thread.submit(Job(lambda: collective(peers), end))
        return Pending(self, what, job, job.result, end)

    def peers(self, channel: int) -> Peers:
        """Return all ranks, for messages in a channel without collectives; they keep their order from rank to rank."""
        return _AllRanks(self, channel, 0)

    def barrier(self) -> None:
        """Wait for all ranks. It counts as control traffic."""
        if self.world_size == 1:
            return
        try:
            dist.barrier()
        except RuntimeError as error:
            raise self.error("barrier", error) from error

    def require_equal(self, value: int, what: str) -> None:
        """Compare a value with that of all other ranks; `what` names it in the error.

        Raises:
            CollectiveError: `value` is not the same on all ranks.
        """
        (theirs,) = self.exchange_sizes([value] * self.world_size).wait()
        other = [rank for rank, found in enumerate(theirs.tolist()) if found != value]
        if other:
            raise CollectiveError(f"rank {self.rank}: {what} differs from that of rank {', '.join(map(str, other))}")

    def count(self, all_ranks_bytes: int, *, control: bool = False) -> None:
        """Count this rank's part of the bytes that all ranks send together; parts are whole and add up exactly."""
        part = (all_ranks_bytes + self.world_size - 1 - self.rank) // self.world_size
        self.control_bytes += part if control else 0
        self.charge(0 if control else part)

    def charge(self, sent_bytes: int) -> None:
        """Count payload bytes that this rank sent; called from two threads."""
        with self._counting:
            self.payload_bytes += sent_bytes

    def _mark(self) -> None:
        """Tell the clock that others see now what this rank does."""
        if self.clock is not None:
            self.clock.mark()

    def waiting(self) -> AbstractContextManager[None]:
        """Return the phase of a wait for other ranks."""
        return nullcontext() if self.clock is None else self.clock.phase(WAITING)

    def error(self, what: str, cause: BaseException) -> CollectiveError:
        """Return the error of a collective, which names this rank, the step and the timeout."""
        where = f"in step {self.step}" if self.step >= 0 else "before the first step"
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        return CollectiveError(f"rank {self.rank}: {what} failed {where} (timeout {self.timeout_s:g} s wall): {reason}")

    def _collective(self, what: str, issue: _Issue, result: Callable[[], list[Tensor]]) -> Pending:
        work = self._issue(what, issue)
        if work is None:
            return Pending(self, what, work, result, Nothing().wait)
        through = self.accelerator.until_through(work.wait)
        return Pending(self, what, work, result, self.stopwatch.follow(through))

    def _message(self, what: str, issue: _Issue, result: Callable[[], list[Tensor]]) -> Pending:
        return Pending(self, what, self._issue(what, issue), result, self.stopwatch.start())

    def _issue(self, what: str, issue: _Issue) -> dist.Work | None:
        self._mark()
        try:
            return issue()
        except RuntimeError as error:
            raise self.error(what, error) from error

    def _done(self, tensors: list[Tensor]) -> Pending:
        self._mark()
        return Pending(self, "nothing", None, lambda: tensors, Nothing().wait)
