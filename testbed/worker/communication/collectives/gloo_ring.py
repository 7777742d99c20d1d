"""Ring as gloo's all-reduce has it, over gloo's own messages: in segments, two of which are under way.

gloo's is compiled, and a host's time for each segment cannot be added to it. Messages, their order and the receiver's
ready messages are the same here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from testbed.core.costs.sockets import GLOO, Gloo
from testbed.worker.communication.host import NO_HOST, Host
from testbed.worker.communication.transport import Peers, Waitable, combine


def all_reduce(peers: Peers, tensor: Tensor, op: str = "sum", gloo: Gloo = GLOO, host: Host = NO_HOST) -> None:
    """Reduce `tensor` in place.

    Every rank sends to the one before. In the first half a segment is summed as it goes round, in the second it is
    passed on as it is; the second begins once all of the first has come.
    """
    segments = _cut(tensor, gloo.segments(tensor.nbytes, peers.size))
    each = len(segments) // peers.size
    scratch = [torch.empty_like(segments[0]) for _ in range(gloo.in_flight)]
    turns = list(_turns(segments, (peers.index + 1) * each, each, peers.size))
    into = [scratch[at % gloo.in_flight][: len(target)] for at, (_, target) in enumerate(turns)]
    _pass(peers, [(out, kept, target) for (out, target), kept in zip(turns, into, strict=True)], op, gloo, host)
    turns = list(_turns(segments, peers.index * each, each, peers.size))
    _pass(peers, [(out, target, target) for out, target in turns], op, gloo, host)


def _cut(tensor: Tensor, count: int) -> list[Tensor]:
    """Return views of so many segments, of one size but for the last ones, which may be empty."""
    flat = tensor.view(-1)
    width = max(1, -(-len(flat) // count))
    return [flat[at * width : (at + 1) * width] for at in range(count)]


def _turns(segments: Sequence[Tensor], first: int, each: int, ranks: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what is sent and where the segment belongs that comes meanwhile: of the next rank's part."""
    for at in range(first, first + (ranks - 1) * each):
        yield segments[at % len(segments)], segments[(at + each) % len(segments)]


def _pass(peers: Peers, turns: Sequence[tuple[Tensor, Tensor, Tensor]], op: str, gloo: Gloo, host: Host) -> None:
    """Send and receive a half.

    Args:
        turns: Of each segment: what is sent, where what comes is received, and what that is summed into.
    """
    under_way = deque[tuple[Waitable, Waitable, Tensor, Tensor]]()

    def finish() -> None:
        received, sent, into, target = under_way.popleft()
        received.wait()
        with host.segment():
            if into is not target:
                combine(target, into, op)
        sent.wait()

    for out, into, target in turns:
        if len(under_way) == gloo.in_flight:
            finish()
        received = peers.receive((peers.index + 1) % peers.size, into)
        under_way.append((received, peers.send((peers.index - 1) % peers.size, out), into, target))
    while under_way:
        finish()
