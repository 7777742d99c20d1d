"""The communicator: everything that a worker sends passes through it, is counted, and is timed.

Only it, its `connections`, the rendezvous and the strategies that are torch's own import `torch.distributed`. One
thread issues collectives, in one order on all ranks (otherwise gloo gives wrong sums without an error); gloo's threads
carry them.
"""

from __future__ import annotations

import datetime
import functools
import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor

from compressors.base.compressor import Exchange
from testbed.worker.communication.connections import AllRanks, Connections, Issue, Result, wait_through
from testbed.worker.communication.host import NO_HOST, Host
from testbed.worker.communication.pending import CollectiveError, Pending
from testbed.worker.communication.rendezvous import Rendezvous
from testbed.worker.communication.thread import CommunicationThread, Job
from testbed.worker.communication.transport import Collective, Nothing, Peers, Waitable
from testbed.worker.device.accelerator import Accelerator
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.stopwatch import Stopwatch


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
    host: Host = NO_HOST
    """Host of the emulated device. If it takes time to start a collective, all run in one thread, one after another."""
    clock: PhaseClock | None = None
    """Clock that is told of each send, and of waits, which are exposed communication; None: nobody reads one. Used in
    its thread alone."""

    def __init__(self, rank: int, world_size: int, timeout_s: float) -> None:
        self.rank, self.world_size, self.timeout_s = rank, world_size, timeout_s
        self.connections = Connections()
        self.step = -1
        """Step that error messages name, -1 before the first; the training loop sets it."""
        self.payload_bytes = 0
        self.control_bytes = 0
        self.stopwatch = Stopwatch()
        self._thread = CommunicationThread()
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
        connections: Connections | None = None,
    ) -> Communicator:
        """Meet the other ranks at a TCP store of rank 0, and return the communicator.

        Args:
            connections: Those to each peer, the same on all ranks; None: one.
            store: Path of a file that all ranks share, to meet at instead of a TCP store.
            service: Path of the socket of a run's rendezvous, to meet at instead of either.
            accelerator: Device of this rank; of the same kind on all ranks.

        Raises:
            CollectiveError: Not all ranks came within `timeout_s` wall seconds.
        """
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
        comm = cls(rank, world_size, timeout_s)
        comm.accelerator, comm.connections = accelerator, connections or comm.connections
        comm.address, comm.interface = address, interface
        timeout = datetime.timedelta(seconds=timeout_s)
        try:
            comm.rendezvous = Rendezvous(
                *(rank, world_size), address=address, port=port, store=store, timeout_s=timeout_s, service=service
            )
            place, backend = comm.rendezvous.place, accelerator.backend
            dist.init_process_group(backend, store=place, rank=rank, world_size=world_size, timeout=timeout)
            comm.connections.open(timeout)
        except (RuntimeError, OSError) as error:
            raise comm.error(f"rendezvous at {service or store or f'{address}:{port}'}", error) from error
        return comm

    def close(self, *, together: bool = True) -> None:
        """Leave the process group, `together` with all ranks, or alone if some may have left already."""
        if together:
            self.barrier()
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
            lambda: self.connections.all_reduce(sent, op),
            lambda: [self.accelerator.back(tensor, sent)],
        )

    def all_gather(self, payload: Tensor, sizes: Sequence[int]) -> Pending:
        """Start to gather payloads, padded to one size for gloo; return a pending (sizes[r],) uint8 of each rank r."""
        if self.world_size == 1:
            return self._done([payload])
        width = max(sizes)
        self.count(self.world_size * (self.world_size - 1) * width)
        padded = payload if len(payload) == width else torch.nn.functional.pad(payload, (0, width - len(payload)))
        gathered = payload.new_empty(self.world_size * width)
        arrived = self.accelerator.beside(gathered)
        issue, cut = self.connections.all_gather(self.accelerator.to_host(padded), arrived, self.world_size)

        def pieces() -> list[Tensor]:
            whole = cut(self.accelerator.back(gathered, arrived))
            return [piece[:size] for piece, size in zip(whole, sizes, strict=True)]

        return self._collective(f"all_gather of {width} bytes", issue, pieces)

    def all_to_all(self, payloads: Sequence[Tensor], sizes: Sequence[int]) -> Pending:
        """Start to send `payloads[r]` to each rank r; return a pending (sizes[r],) uint8 from each."""
        if self.world_size == 1:
            return self._done(list(payloads))
        sent, flat = [len(payload) for payload in payloads], self.connections.flat(payloads)
        self.charge(sum(sent) - sent[self.rank])
        received = flat.new_empty(sum(sizes))
        arrived = self.accelerator.beside(received)
        issue, cut = self.connections.all_to_all(self.accelerator.to_host(flat), sent, arrived, sizes)
        return self._collective(
            f"all_to_all of {sum(sent)} bytes", issue, lambda: cut(self.accelerator.back(received, arrived))
        )

    def exchange_sizes(self, sizes: Sequence[int]) -> Pending:
        """Start to tell each rank r `sizes[r]`; return a pending (world_size,) int64 of theirs. Control traffic."""
        ours = torch.tensor(sizes, dtype=torch.int64)
        if self.world_size == 1:
            return self._done([ours])
        self.control_bytes += 8 * (self.world_size - 1)
        theirs = torch.empty_like(ours)
        return self._collective(
            "exchange of sizes",
            lambda: dist.all_to_all_single(theirs, ours, async_op=True),
            lambda: [theirs],
            control=True,
        )

    def broadcast(self, tensor: Tensor, *, source: int = 0, control: bool = False) -> Pending:
        """Start to overwrite `tensor` with that of rank `source`; return it as pending. `control`: no payload."""
        if self.world_size == 1:
            return self._done([tensor])
        self.count((self.world_size - 1) * tensor.nbytes, control=control)
        sent = self.accelerator.to_host(tensor)
        return self._collective(
            f"broadcast of {tensor.nbytes} bytes",
            lambda: self.connections.broadcast(sent, source),
            lambda: [self.accelerator.back(tensor, sent)],
            control=control,
        )

    def send(self, payload: Tensor, *, to: int) -> Pending:
        """Start to send `payload`; return the pending message, whose time ends with `wait`: gloo tells no other end."""
        self.charge(payload.nbytes)
        issue = functools.partial(self.connections.send, self.accelerator.to_host(payload), to)
        return self._message(f"send of {payload.nbytes} bytes to rank {to}", issue, list)

    def receive(self, payload: Tensor, *, source: int) -> Pending:
        """Start to fill `payload` from rank `source`; return it as pending."""
        arrived = self.accelerator.beside(payload)
        issue = functools.partial(self.connections.receive, arrived, source)
        return self._message(f"receive from rank {source}", issue, lambda: [self.accelerator.back(payload, arrived)])

    def submit(
        self, what: str, collective: Collective, *, channel: int = 0, among: tuple[int, ...] = (), share: float = 1.0
    ) -> Pending:
        """Start a collective of Longhaul's own, or a `share` of one; return its pending result.

        Its ranks (all, or those `among` them) submit the same in one order. It shares gloo's connections, not the GIL.
        """
        peers = self._all_ranks(channel, self._submitted[channel, among])
        self._submitted[channel, among] += 1
        return self._in_turn(what, self.host.starting(lambda: collective(peers), share))

    def peers(self, channel: int) -> Peers:
        """Return all ranks, for messages in a channel without collectives; they keep their order from rank to rank."""
        return self._all_ranks(channel, 0)

    def barrier(self) -> None:
        """Wait for all ranks. It counts as control traffic."""
        if self.world_size == 1:
            return
        if self.host.costs.collective_s:
            self._collective("barrier", lambda: dist.barrier(async_op=True), list, control=True).wait()
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

    def _all_ranks(self, channel: int, number: int) -> AllRanks:
        return AllRanks(self.rank, self.world_size, self.connections, self.charge, channel, number)

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

    def _collective(self, what: str, issue: Issue, result: Result, *, control: bool = False) -> Pending:
        if self.host.costs.collective_s:
            through = functools.partial(wait_through, issue, result)
            return self._in_turn(what, through if control else self.host.starting(through))
        work = self._issue(what, issue)
        if work is None:
            return Pending(self, what, work, result, Nothing().wait)
        end = self.stopwatch.follow(self.accelerator.until_through(work.wait))
        return Pending(self, what, work, result, end)

    def _in_turn(self, what: str, work: Result) -> Pending:
        """Start what comes after all collectives before it, in the thread of Longhaul's own."""
        self._mark()
        end = self.stopwatch.start()
        job = self._thread.submit(Job(work, end))
        return Pending(self, what, job, job.result, end)

    def _message(self, what: str, issue: Issue, result: Result) -> Pending:
        return Pending(self, what, self._issue(what, issue), result, self.stopwatch.start())

    def _issue(self, what: str, issue: Issue) -> Waitable | None:
        self._mark()
        try:
            return issue()
        except RuntimeError as error:
            raise self.error(what, error) from error

    def _done(self, tensors: list[Tensor]) -> Pending:
        self._mark()
        return Pending(self, "nothing", None, lambda: tensors, Nothing().wait)
