"""Transport for collective algorithms: some ranks, receives that are posted ahead, and sends."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from testbed.core.costs.collective import part_sizes

AHEAD = 8
"""Receives posted before the first is waited for. Two hide a link's latency; scratch memory grows with it."""


class Waitable(Protocol):
    def wait(self) -> object: ...


class Nothing:
    """Handle of a message without bytes: both sides know its size, and nothing is sent."""

    def wait(self) -> None:
        pass


class Peers(Protocol):
    """Ranks that take part in one collective, by their index among themselves."""

    @property
    def index(self) -> int:
        """Index of this rank."""

    @property
    def size(self) -> int: ...

    def send(self, to: int, tensor: Tensor) -> Waitable:
        """Start to send; return the handle. `tensor` must not change before it is waited for."""

    def receive(self, source: int, tensor: Tensor) -> Waitable:
        """Start to receive the next message of `source` into `tensor`; return the handle."""


Collective = Callable[[Peers], list[Tensor]]
"""Part of one rank in a collective; returns its result."""


class Subset:
    """Some of the peers; this rank is one of them."""

    def __init__(self, peers: Peers, members: Sequence[int]) -> None:
        self._peers, self._members = peers, members
        self.index, self.size = members.index(peers.index), len(members)

    def send(self, to: int, tensor: Tensor) -> Waitable:
        return self._peers.send(self._members[to], tensor)

    def receive(self, source: int, tensor: Tensor) -> Waitable:
        return self._peers.receive(self._members[source], tensor)


class Arrivals:
    """Messages of one source in their order; up to `AHEAD` receives are posted from the beginning."""

    def __init__(self, peers: Peers, source: int, targets: Iterable[Tensor]) -> None:
        """Post the first receives.

        Args:
            targets: Tensor for each message; taken as receives are posted, so that scratch memory can be made late.
        """
        self._peers, self._source, self._targets = peers, source, iter(targets)
        self._posted: deque[tuple[Tensor, Waitable]] = deque()
        for target in itertools.islice(self._targets, AHEAD):
            self._post(target)

    def __iter__(self) -> Iterator[Tensor]:
        while self._posted:
            target, handle = self._posted.popleft()
            handle.wait()
            for following in itertools.islice(self._targets, 1):
                self._post(following)
            yield target

    def _post(self, target: Tensor) -> None:
        self._posted.append((target, self._peers.receive(self._source, target)))


def exchange(peers: Peers, sends: Iterable[tuple[int, Tensor]], receives: Iterable[tuple[int, Tensor]]) -> None:
    """Send and receive at once, and wait for all of it; every receive is posted before the first send."""
    handles = [peers.receive(source, tensor) for source, tensor in receives]
    handles += [peers.send(to, tensor) for to, tensor in sends]
    wait_all(handles)


def wait_all(handles: Iterable[Waitable]) -> None:
    for handle in handles:
        handle.wait()


def split(tensor: Tensor, parts: int) -> list[Tensor]:
    """Return views of `tensor`, which must be contiguous, in parts whose sizes differ by one element at most."""
    return list(tensor.view(-1).split(part_sizes(tensor.numel(), parts)))


def combine(into: Tensor, other: Tensor, op: str) -> None:
    if op == "sum":
        into.add_(other)
    else:
        torch.maximum(into, other, out=into)


def others(peers: Peers) -> list[int]:
    """Return all ranks but this one, beginning with the next one, so that not all send to the same rank first."""
    return [(peers.index + step) % peers.size for step in range(1, peers.size)]


def places(payload: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Return memory for one payload of each size, one after another in one tensor."""
    return list(torch.empty(sum(sizes), dtype=payload.dtype).split(list(sizes)))
