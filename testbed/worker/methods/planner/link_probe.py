"""What messages between ranks really take: round trips over the run's own links, before its first step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.core.parallelism.links import Line, fitted, links_to_json, probe_rounds, probed_links
from testbed.core.parallelism.problem import LinkMatrix
from testbed.core.record.events.pipeline import LinkProbe
from testbed.worker.communication.communicator import Communicator

SIZES_BYTES = (1, 262_144, 32_768)
"""Of messages, in this order: a small message tells nothing of the rate while TCP's window is no larger than it."""
LARGEST_BYTES = 2_097_152
"""Of messages on links that take 256 KiB in less than `LONG_S` more than a byte."""
LONG_S = 0.25
"""Of emulated time."""
REPEATS = 3
"""Of each size, whose median counts: the last ones, when they are alike."""
ALIKE = 1.1
"""Times the shortest. TCP opens its window with each round trip; before that a long link looks like a slow one."""
MAX_REPEATS = 12
"""Of each size, whether or not the last ones are alike."""


@dataclass(frozen=True)
class Probed:
    """The same on all ranks."""

    links: LinkMatrix
    pairs: int
    sent_bytes: int
    """By all ranks, of messages and answers."""
    took_s: float
    """On the rank that took longest, in emulated seconds."""

    def event(self) -> LinkProbe:
        """Return the event for the record."""
        return LinkProbe(**links_to_json(self.links), pairs=self.pairs, sent_bytes=self.sent_bytes, took_s=self.took_s)


def probe(comm: Communicator, regions: Sequence[str], dilation: float = 1.0) -> Probed:
    """Measure the links between regions and inside them, by a pair of ranks each; all ranks call it at once. Pairs that
    have no region in common go at the same time.

    A sends a message, B answers with one byte as soon as it is whole; both have their receives posted before. The line
    of least squares through the medians over several sizes gives 8 / rate as its slope, and twice alpha as its
    beginning: links are taken to be as far there as back. No two clocks are compared.

    What is sent is counted as payload before the first step, which belongs to none.

    Args:
        regions: of each rank.
        dilation: of the network; times are emulated ones.

    Raises:
        CollectiveError: a message failed or took too long.
    """
    began_s, before = time.monotonic(), comm.payload_bytes
    rounds, world = probe_rounds(regions), comm.world_size
    found = torch.zeros(world, world, 2, dtype=torch.float64)
    for pairs in rounds:
        comm.barrier()  # nobody else's messages are on the links
        for source, target in pairs:
            if comm.rank == source:
                line = _measured(comm, target, dilation)
                found[source, target] = torch.tensor([line.alpha_s, line.rate_bit_s], dtype=torch.float64)
            elif comm.rank == target:
                _answer(comm, source)
    sent_bytes = comm.payload_bytes - before
    summed = torch.cat([found.flatten(), torch.tensor([float(sent_bytes)], dtype=torch.float64)])
    comm.all_reduce(summed).wait()
    took = torch.tensor([(time.monotonic() - began_s) / dilation], dtype=torch.float64)
    comm.all_reduce(took, op="max").wait()
    matrix = summed[:-1].view(world, world, 2).tolist()
    tried = [pair for pairs in rounds for pair in pairs]
    lines = {(i, j): Line(*matrix[i][j]) for i, j in tried}
    return Probed(probed_links(regions, lines), len(tried), int(summed[-1].item()), took.item())


def _measured(comm: Communicator, target: int, dilation: float) -> Line:
    """The side that asks. An announcement of no bytes ends it."""
    round_trips_s = {size: _round_trips_s(comm, target, size, dilation) for size in SIZES_BYTES}
    byte_s, *longer_s = [min(trips_s) for trips_s in round_trips_s.values()]
    if max(longer_s) < byte_s + LONG_S:
        round_trips_s[LARGEST_BYTES] = _round_trips_s(comm, target, LARGEST_BYTES, dilation)
    comm.send(_size(0), to=target).wait()
    return fitted(round_trips_s)


def _round_trips_s(comm: Communicator, target: int, size: int, dilation: float) -> list[float]:
    """Of messages of one size, when the window is open. Each says in its first byte whether another follows."""
    _announce(comm, target, size)
    message, times_s, more = torch.ones(size, dtype=torch.uint8), list[float](), True
    while more:
        more = len(times_s) < REPEATS - 1 or (len(times_s) < MAX_REPEATS - 1 and not _alike(times_s[-REPEATS:]))
        message[0] = int(more)
        times_s.append(_round_trip_s(comm, target, message) / dilation)
    return times_s[-REPEATS:]


def _alike(times_s: Sequence[float]) -> bool:
    return len(times_s) == REPEATS and max(times_s) <= ALIKE * min(times_s)


def _announce(comm: Communicator, target: int, size: int) -> None:
    ready = comm.receive(_byte(), source=target)
    comm.send(_size(size), to=target).wait()
    ready.wait()


def _round_trip_s(comm: Communicator, target: int, message: Tensor) -> float:
    answer = comm.receive(_byte(), source=target)
    began_s = time.monotonic()
    sent = comm.send(message, to=target)
    answer.wait()
    took_s = time.monotonic() - began_s
    sent.wait()
    return took_s


def _answer(comm: Communicator, source: int) -> None:
    """The side that is asked: each receive is posted before the byte that lets the next message go."""
    while True:
        (announced,) = comm.receive(_size(0), source=source).wait()
        size, more = int(announced.item()), True
        if size == 0:
            return
        while more:
            arriving = comm.receive(torch.empty(size, dtype=torch.uint8), source=source)
            comm.send(_byte(), to=source).wait()
            (message,) = arriving.wait()
            more = bool(message[0].item())
        comm.send(_byte(), to=source).wait()


def _byte() -> Tensor:
    return torch.zeros(1, dtype=torch.uint8)


def _size(size: int) -> Tensor:
    return torch.tensor([size], dtype=torch.int64)
