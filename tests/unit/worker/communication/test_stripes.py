"""A stream over several connections: its order, which connection has which bytes, and that both ways go at once."""

from __future__ import annotations

import socket

import pytest

from testbed.worker.communication.stripes import Stripes

PIECE = 1000


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, PIECE, 2 * PIECE + 1, 12_345])
def test_bytes_come_in_order_whatever_is_taken_at_once(count: int, size: int) -> None:
    pairs = [socket.socketpair() for _ in range(count)]
    near, far = (Stripes(ends, PIECE) for ends in zip(*pairs, strict=True))
    data, received = bytes(index % 251 for index in range(size)), b""
    left = memoryview(data)
    while left:
        left = left[near.send(left[:777]) :]
        received += far.receive(333)
    while len(received) < size:
        received += far.receive(333)
    assert received == data
    with pytest.raises(BlockingIOError):
        far.receive(1)
    assert far.send(memoryview(b"back")) == 4 and near.receive(100) == b"back"
    near.close()
    assert far.receive(1) == b""
    far.close()


def test_each_connection_has_every_third_piece() -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    near = Stripes([end for end, _ in pairs], PIECE)
    left = memoryview(bytes(index // PIECE for index in range(7 * PIECE)))
    while left:
        left = left[near.send(left) :]
    for number, (_, end) in enumerate(pairs):
        found = end.recv(1 << 16)
        assert found == b"".join(bytes([piece]) * PIECE for piece in range(7) if piece % 3 == number)
        end.close()
    near.close()
