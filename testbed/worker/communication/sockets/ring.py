"""All-reduce and broadcast round a ring of TCP connections, with the channels, pieces and credits of NCCL over sockets.

A channel takes the next slice as soon as it has come, if fewer than `slices_ahead` of those it passed on wait for the
kernel. A slice goes out in pieces, one connection after another, and has come when its last piece has: the slowest
connection decides. No message says that a receiver is ready.
"""

from __future__ import annotations

import math
import select
import selectors
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from testbed.core.costs.sockets import Nccl
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.sockets.lines import Line, Lines, Slice
from testbed.worker.communication.sockets.neighbours import Neighbours
from testbed.worker.communication.sockets.schedule import MIN_SLICE_BYTES, Move, chain_moves, moves, share
from testbed.worker.communication.transport import combine

_SIZE = struct.Struct("!I")
"""Goes ahead of each slice, on the control connection."""


class _Channel:
    """One ring's part in one all-reduce."""

    def __init__(
        self, plan: Sequence[Move], flat: Tensor, op: str, lines: tuple[Lines, Lines], ahead: int, host_s: float
    ) -> None:
        self._flat, self._op, self._ahead, self._host_s = flat, op, ahead, host_s
        self._outgoing, self._incoming = lines
        self._bytes = flat.view(torch.uint8).numpy().data
        self._moves, self._to_post = deque(plan), deque(move for move in plan if move.receives)
        self._posted = deque[tuple[Slice, Tensor, bytearray]]()
        self._sent = deque[Slice]()
        self._waits_for_host = False
        self._post()

    def advance(self) -> bool:
        """Do all moves that can be done now; return whether there are none left, and nothing is under way."""
        self._waits_for_host = False
        while self._moves and self._can(self._moves[0]):
            move = self._moves.popleft()
            if move.receives:
                self._take(move)
            if move.sends:
                item = self._flat.element_size()
                body = self._bytes[move.start * item : move.stop * item]
                self._sent.append(self._outgoing.post(memoryview(_SIZE.pack(len(body))), body))
        return not (self._moves or self._outstanding())

    @property
    def wakes_s(self) -> float:
        """When the host has done with the slice that it is at; infinity: something else is waited for."""
        return self._posted[0][0].due_s if self._waits_for_host else math.inf

    def _can(self, move: Move) -> bool:
        has_come = not move.receives or self._is_done(self._posted[0][0])
        return has_come and not (move.sends and self._outstanding() >= self._ahead)

    def _is_done(self, slice_: Slice) -> bool:
        """Return True once a slice has come, and the host, which takes one after another, has had its time for it."""
        if slice_.missing or not self._host_s:
            return not slice_.missing
        now_s = time.monotonic()
        slice_.due_s = min(slice_.due_s, now_s + self._host_s)
        self._waits_for_host = now_s < slice_.due_s
        return not self._waits_for_host

    def _outstanding(self) -> int:
        """Count slices that the kernel has not taken yet."""
        while self._sent and not self._sent[0].missing:
            self._sent.popleft()
        return len(self._sent)

    def _take(self, move: Move) -> None:
        _, found, header = self._posted.popleft()
        asked_bytes, (said_bytes,) = found.nbytes, _SIZE.unpack(header)
        if said_bytes != asked_bytes:
            raise ConnectionError(f"the rank before sends {said_bytes} bytes where {asked_bytes} are due")
        into = self._flat[move.start : move.stop]
        if move.reduces:
            combine(into, found, self._op)
        else:
            into.copy_(found)
        self._post()

    def _post(self) -> None:
        """Have so many slices received as may be ahead of what is taken."""
        while self._to_post and len(self._posted) < self._ahead:
            move = self._to_post.popleft()
            into, header = torch.empty(move.stop - move.start, dtype=self._flat.dtype), bytearray(_SIZE.size)
            message = self._incoming.post(memoryview(header), into.view(torch.uint8).numpy().data)
            self._posted.append((message, into, header))


class SocketRing:
    """All-reduces over the connections of a rank; every rank of the ring calls the same ones in one order."""

    def __init__(self, neighbours: Neighbours, *, rank: int, size: int, library: Nccl, timeout_s: float) -> None:
        self.neighbours, self.rank, self.size = neighbours, rank, size
        self.library, self.timeout_s = library, timeout_s
        self._lines = [
            (Lines(out, selectors.EVENT_WRITE, library), Lines(into, selectors.EVENT_READ, library))
            for out, into in zip(neighbours.outgoing, neighbours.incoming, strict=True)
        ]

    @classmethod
    def of(cls, comm: Communicator, library: Nccl) -> SocketRing:
        """Connect all ranks of a communicator, which all call this as often.

        Raises:
            OSError: A neighbour cannot be reached, or did not come in time.
        """
        assert comm.rendezvous is not None, "there is nobody to meet"
        neighbours = Neighbours.meet(
            comm.rendezvous,
            rank=comm.rank,
            size=comm.world_size,
            interface=comm.interface,
            channels=library.channels,
            sockets=library.sockets,
            timeout_s=comm.timeout_s,
        )
        return cls(neighbours, rank=comm.rank, size=comm.world_size, library=library, timeout_s=comm.timeout_s)

    def all_reduce(
        self, tensor: Tensor, op: str = "sum", charge: Callable[[int], None] = lambda _: None, host_s: float = 0.0
    ) -> None:
        """Reduce `tensor`, which must be contiguous and in the processor's memory, in place.

        Args:
            charge: Takes the bytes of data that this rank sends.
            host_s: Wall seconds from a slice's arrival until its channel passes it on.

        Raises:
            TimeoutError: Nothing came or went for `timeout_s`.
            ConnectionError: A neighbour has gone.
        """
        flat = tensor.view(-1)
        self._run([self._plan(flat, channel) for channel in range(len(self._lines))], flat, op, charge, host_s)

    def broadcast(self, tensor: Tensor, charge: Callable[[int], None] = lambda _: None, host_s: float = 0.0) -> None:
        """Overwrite `tensor`, as `all_reduce` takes it, with that of rank 0, which goes along the ring."""
        flat, channels = tensor.view(-1), len(self._lines)
        slice_ = max(1, self.library.chain_chunk_bytes // flat.element_size())
        shares = (share(flat.numel(), channel, channels) for channel in range(channels))
        place: dict[str, int] = {"rank": self.rank, "size": self.size, "slice_": slice_}
        self._run([list(chain_moves(start, stop, **place)) for start, stop in shares], flat, "sum", charge, host_s)

    def _run(
        self, plans: Sequence[Sequence[Move]], flat: Tensor, op: str, charge: Callable[[int], None], host_s: float
    ) -> None:
        """Do the moves of each channel."""
        charge(flat.element_size() * sum(move.stop - move.start for plan in plans for move in plan if move.sends))
        ahead = self.library.slices_ahead
        channels = [
            _Channel(plan, flat, op, lines, ahead, host_s)
            for plan, lines in zip(plans, self._lines, strict=True)
            if plan
        ]
        with selectors.EpollSelector() as selector:
            self._perform(channels, selector)

    def _plan(self, flat: Tensor, channel: int) -> list[Move]:
        item = flat.element_size()
        chunk, slice_ = max(1, self.library.chunk_bytes // item), max(1, self.library.slice_bytes // item)
        start, stop = share(flat.numel(), channel, len(self._lines))
        place = {"rank": self.rank, "size": self.size}
        least = max(1, min(MIN_SLICE_BYTES, self.library.slice_bytes) // item)
        return list(moves(start, stop, **place, chunk=chunk, slice_=slice_, least=least))

    def _perform(self, channels: Sequence[_Channel], selector: selectors.EpollSelector) -> None:
        directions = [direction for pair in self._lines for direction in pair]
        lines = [line for direction in directions for line in direction.all]
        watched, ready = set[Line](), list[Line]()
        while True:
            for line in ready:
                line.run()
            through = [channel.advance() for channel in channels]
            for direction in directions:
                direction.go_on()
            for line in lines:
                if line.pieces and line not in watched:
                    selector.register(line.connection, line.event, line)
                    watched.add(line)
                elif not line.pieces and line in watched:
                    selector.unregister(line.connection)
                    watched.discard(line)
            if all(through):
                return
            ready = self._ready(selector, min((channel.wakes_s for channel in channels), default=math.inf))

    def _ready(self, selector: selectors.EpollSelector, wakes_s: float) -> list[Line]:
        """Wait until lines can go on, and return them; none once it is `wakes_s`.

        Raises:
            TimeoutError: Neither comes.
        """
        gives_up_s = time.monotonic() + self.timeout_s
        until_s, ready = min(gives_up_s, wakes_s), list[Line]()
        while not ready:  # a connection that could go on may be unable to by the time that it is asked for
            left_s = max(0.0, until_s - time.monotonic())
            select.select([selector], [], [], left_s)  # the selector itself waits for whole milliseconds
            ready = [key.data for key, _ in selector.select(0)]
            if not left_s:
                break
        if not ready and until_s == gives_up_s:
            raise TimeoutError(f"nothing came from the rank before, or left for the next, for {self.timeout_s:g} s")
        return ready
