"""What messages between ranks really take: round trips over the run's own links, before its first step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.core.parallel.links import Line, fitted, links_to_json, probe_rounds, probed_links
from testbed.core.parallel.problem import LinkMatrix
from testbed.worker.comm import Communicator

SIZES_BYTES = (1, 32_768, 262_144, 2_097_152)
"""Of messages, until one takes `LONG_S` longer than a byte does; two are tried, however long they take."""
LONG_S = 0.1
"""Of emulated time."""
WARM_UPS = 2
"""Messages of each size that count for nothing: they open TCP's window, which doubles with each round trip. From one
size to the next it has to grow eightfold, else a long link looks like a slow one."""
REPEATS = 3
"""Of each size after that, whose median counts."""


@dataclass(frozen=True)
class Probed:
    """The same on all ranks."""

    links: LinkMatrix
    pairs: int
    sent_bytes: int
    """By all ranks, of messages and answers."""
    took_s: float
    """On the rank that took longest, in emulated seconds."""

    def note(self) -> dict[str, Any]:
        """The event for the record."""
        found = links_to_json(self.links)
        return {"event": "link_probe", **found, "pairs": self.pairs, "sent_bytes": self.sent_bytes} | {
            "took_s": self.took_s
        }


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
    round_trips_s: dict[int, list[float]] = {}
    for size in SIZES_BYTES:
        _announce(comm, target, size)
        times_s = [_round_trip_s(comm, target, size) / dilation for _ in range(WARM_UPS + REPEATS)]
        round_trips_s[size] = times_s[WARM_UPS:]
        if min(round_trips_s[size]) > min(round_trips_s[SIZES_BYTES[0]]) + LONG_S:
            break
    comm.send(_size(0), to=target).wait()
    return fitted(round_trips_s)


def _announce(comm: Communicator, target: int, size: int) -> None:
    ready = comm.receive(_byte(), source=target)
    comm.send(_size(size), to=target).wait()
    ready.wait()


def _round_trip_s(comm: Communicator, target: int, size: int) -> float:
    answer, message = comm.receive(_byte(), source=target), torch.zeros(size, dtype=torch.uint8)
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
        size = int(announced.item())
        if size == 0:
            return
        for _ in range(WARM_UPS + REPEATS):
            message = comm.receive(torch.empty(size, dtype=torch.uint8), source=source)
            comm.send(_byte(), to=source).wait()
            message.wait()
        comm.send(_byte(), to=source).wait()


def _byte() -> Tensor:
    return torch.zeros(1, dtype=torch.uint8)


def _size(size: int) -> Tensor:
    return torch.tensor([size], dtype=torch.int64)
