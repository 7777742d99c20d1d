"""Calls of torch's process groups, over one or several connections to each peer.

gloo has one TCP connection a pair of ranks in each process group. With groups side by side a message goes in parts, one
a connection, as NCCL's over several sockets and iperf's with -P: it is through once its last part is.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from testbed.core.costs.collective import NCCL_RING, part_sizes
from testbed.core.costs.sockets import NCCL, least_part_bytes
from testbed.core.spec.connections import part_count
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.communication.transport import Nothing, Waitable

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name in torch before 2.13
Issue = Callable[[], Waitable | None]
"""Starts a collective; returns its handle, None for one that is done."""
Cut = Callable[[Tensor], list[Tensor]]
"""Returns the payload of each rank, of all that has arrived in one tensor."""
Result = Callable[[], list[Tensor]]
_Value = TypeVar("_Value")


class _Parts:
    """Handles of the parts of one message."""

    def __init__(self, parts: Sequence[Waitable]) -> None:
        self._parts = parts

    def wait(self) -> None:
        for part in self._parts:
            part.wait()


class Connections:
    """Process groups of all ranks, side by side; a connection to each peer belongs to each.

    Which part goes over which follows from its size alone, so both ends agree. Parts of less than `least_bytes` are not
    made, but in an all-to-all, where no rank knows the sizes of the others.
    """

    def __init__(self, count: int = 1, least_bytes: float = NCCL.piece_bytes) -> None:
        self.count, self._least_bytes = count, least_bytes
        self._groups: list[dist.ProcessGroup | None] = [None]  # torch's default one

    @classmethod
    def of(cls, spec: RunSpec) -> Connections:
        """Return those that a run asks for; a ring of sockets has its own beside gloo's."""
        count = 1 if spec.strategy.params.get("collective") == NCCL_RING else spec.connections or 1
        return cls(count, least_part_bytes(spec.scale))

    def open(self, timeout: datetime.timedelta) -> None:
        """Make all groups but the first, which is there; all ranks do at once."""
        for _ in range(self.count - 1):
            self._groups.append(dist.new_group(timeout=timeout, backend="gloo"))

    def all_reduce(self, tensor: Tensor, op: str) -> Waitable | None:
        return _together(
            dist.all_reduce(part, _OPS[op], group=group, async_op=True) for group, part in self._parts(tensor)
        )

    def broadcast(self, tensor: Tensor, source: int) -> Waitable | None:
        return _together(
            dist.broadcast(part, source, group=group, async_op=True) for group, part in self._parts(tensor)
        )

    def send(self, tensor: Tensor, to: int, tag: int = 0) -> Waitable | None:
        return _together(dist.isend(part, to, group=group, tag=tag) for group, part in self._parts(tensor))

    def receive(self, tensor: Tensor, source: int, tag: int = 0) -> Waitable | None:
        return _together(dist.irecv(part, source, group=group, tag=tag) for group, part in self._parts(tensor))

    def all_gather(self, payload: Tensor, into: Tensor, ranks: int) -> tuple[Issue, Cut]:
        """Return what starts to gather payloads of one size in `into`, and what then cuts that into those of ranks."""
        parts = self._parts(payload)
        lengths = [ranks * len(part) for _, part in parts]

        def issue() -> Waitable | None:
            calls = zip(into.split(lengths), parts, strict=True)
            return _together(_gather(room, part, group=group, async_op=True) for room, (group, part) in calls)

        def cut(gathered: Tensor) -> list[Tensor]:
            return _joined([room.view(ranks, len(room) // ranks).unbind() for room in gathered.split(lengths)])

        return issue, cut

    def flat(self, payloads: Sequence[Tensor]) -> Tensor:
        """Return the payloads of an all-to-all in one tensor, in the order in which connections take their parts."""
        split = [payload.split(part_sizes(len(payload), self.count)) for payload in payloads]
        return torch.cat([part for parts in _by_connection(split) for part in parts])

    def all_to_all(self, flat: Tensor, sent: Sequence[int], into: Tensor, sizes: Sequence[int]) -> tuple[Issue, Cut]:
        """Return what starts to send each rank r its payload, and what then cuts `into` into those of ranks.

        Args:
            flat: As `flat` makes it of payloads of `sent[r]` bytes.
            into: What `sizes[r]` bytes of each rank r arrive in.
        """
        ours = _by_connection([part_sizes(size, self.count) for size in sent])
        due = _by_connection([part_sizes(size, self.count) for size in sizes])
        lengths = [sum(parts) for parts in due]

        def issue() -> Waitable | None:
            calls = zip(
                into.split(lengths), flat.split([sum(parts) for parts in ours]), due, ours, self._groups, strict=True
            )
            return _together(
                dist.all_to_all_single(room, part, there, here, group=group, async_op=True)
                for room, part, there, here, group in calls
            )

        def cut(received: Tensor) -> list[Tensor]:
            return _joined([room.split(parts) for room, parts in zip(received.split(lengths), due, strict=True)])

        return issue, cut

    def _parts(self, tensor: Tensor) -> list[tuple[dist.ProcessGroup | None, Tensor]]:
        count = max(1, min(tensor.numel(), part_count(tensor.nbytes, self.count, self._least_bytes)))
        if count == 1:
            return [(None, tensor)]
        return list(zip(self._groups, tensor.view(-1).split(part_sizes(tensor.numel(), count)), strict=False))


def wait_through(issue: Issue, result: Result) -> list[Tensor]:
    """Start a collective, wait for it, and return its result."""
    (issue() or Nothing()).wait()
    return result()


class AllRanks:
    """Peers of one collective of Longhaul's. Its number marks its messages, so that no other collective takes them."""

    def __init__(
        self, index: int, size: int, connections: Connections, charge: Callable[[int], None], channel: int, number: int
    ) -> None:
        self.index, self.size = index, size
        self._connections, self._charge = connections, charge
        self._tag = 1 + channel * 2**20 + number % 2**20  # 0 is that of `Communicator.send` and `receive`

    def send(self, to: int, tensor: Tensor) -> Waitable:
        if not tensor.numel():
            return Nothing()
        self._charge(tensor.nbytes)
        return self._connections.send(tensor, to, self._tag) or Nothing()

    def receive(self, source: int, tensor: Tensor) -> Waitable:
        if not tensor.numel():
            return Nothing()
        return self._connections.receive(tensor, source, self._tag) or Nothing()


def _together(handles: Iterable[Waitable | None]) -> Waitable | None:
    found = [handle for handle in handles if handle is not None]
    return found[0] if len(found) == 1 else _Parts(found) if found else None


def _by_connection(by_rank: Sequence[Sequence[_Value]]) -> list[list[_Value]]:
    return [list(values) for values in zip(*by_rank, strict=True)]


def _joined(by_connection: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return the whole payload of each rank."""
    return [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*by_connection, strict=True)]
