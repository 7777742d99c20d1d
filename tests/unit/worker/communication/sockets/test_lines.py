"""Pieces of messages over the connections of a channel: which may be under way, and which wait for others."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from testbed.core.costs.sockets import Nccl
from testbed.worker.communication.sockets.lines import Lines
from testbed.worker.communication.sockets.neighbours import Lane

PIECE_BYTES = 1 << 20
"""More than the kernel takes at once between two processes of one machine."""


@pytest.fixture
def connected() -> Iterator[Callable[[int], tuple[Lane, list[socket.socket]]]]:
    """Returns a lane of so many data connections, and their far ends; the control connection's is the first."""
    with ExitStack() as stack:

        def connect(sockets: int) -> tuple[Lane, list[socket.socket]]:
            pairs = [socket.socketpair() for _ in range(sockets + 1)]
            for near, far in pairs:
                stack.enter_context(near).setblocking(False)
                stack.enter_context(far).settimeout(20)
            return Lane(pairs[0][0], tuple(near for near, _ in pairs[1:])), [far for _, far in pairs]

        yield connect


def run(lines: Lines) -> None:
    for line in lines.all:
        line.run()
    lines.go_on()


def taken(lines: Lines, far: socket.socket, size_bytes: int) -> None:
    """Read so much at the far end, with what the sender does meanwhile."""
    while size_bytes:
        size_bytes -= len(far.recv(size_bytes))
        run(lines)


@pytest.mark.parametrize(("threads", "goes_on"), [(1, False), (2, True)])
def test_a_thread_ends_its_pieces_before_it_begins_the_next(
    connected: Callable[[int], tuple[Lane, list[socket.socket]]], threads: int, goes_on: bool
) -> None:
    """The first connection is full and the second free; the second's next piece goes out if another thread has it."""
    lane, (_, first, second) = connected(2)
    lines = Lines(lane, selectors.EVENT_WRITE, Nccl(threads=threads, piece_bytes=PIECE_BYTES))
    body = memoryview(bytes(2 * PIECE_BYTES))
    messages = [lines.post(memoryview(b"size"), body) for _ in range(2)]
    run(lines)
    taken(lines, second, PIECE_BYTES)
    run(lines)
    second.setblocking(False)
    if goes_on:
        assert second.recv(1) == b"\0"
    else:
        with pytest.raises(BlockingIOError):
            second.recv(1)
    assert all(message.missing for message in messages)
    taken(lines, first, PIECE_BYTES)  # which ends the first message
    run(lines)
    assert second.recv(1) == b"\0"
    assert not messages[0].missing


def test_small_messages_fill_a_turn_together(connected: Callable[[int], tuple[Lane, list[socket.socket]]]) -> None:
    """A turn is so many pieces as there are connections, whichever messages they are of."""
    lane, (_, *far) = connected(4)
    lines = Lines(lane, selectors.EVENT_WRITE, Nccl(threads=1, piece_bytes=64))
    for number in range(3):
        lines.post(memoryview(b"size"), memoryview(bytes([number]) * 128))  # two pieces
    run(lines)
    assert [connection.recv(64) for connection in far] == [bytes([number // 2]) * 64 for number in range(4)]
    run(lines)
    assert [connection.recv(64) for connection in far[:2]] == [bytes([2]) * 64] * 2


def test_without_data_connections_sizes_and_data_stay_in_order(
    connected: Callable[[int], tuple[Lane, list[socket.socket]]],
) -> None:
    lane, (control,) = connected(0)
    lines = Lines(lane, selectors.EVENT_WRITE, Nccl(sockets=0))
    for number in (1, 2):
        lines.post(memoryview(b"size"), memoryview(bytes([number]) * 8))
    run(lines)
    assert control.recv(64) == b"size" + b"\1" * 8 + b"size" + b"\2" * 8
