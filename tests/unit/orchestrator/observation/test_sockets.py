"""Answers of the kernel about connections that are none."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from testbed.orchestrator.observation import sockets
from testbed.orchestrator.observation.sockets import ConnectionReader


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, ConnectionReader]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    monkeypatch.setattr(sockets, "in_network_namespace", lambda path, make: ours)
    with ours, theirs:
        yield theirs, ConnectionReader("/proc/self/ns/net")


def test_an_error_is_raised_and_not_waited_behind(kernel: tuple[socket.socket, ConnectionReader]) -> None:
    theirs, reader = kernel
    theirs.send(struct.pack("=IHHIIi16x", 36, 2, 0, 1, 0, -errno.EBUSY))
    with pytest.raises(OSError, match="connections cannot be read") as raised:
        reader.read()
    assert raised.value.errno == errno.EBUSY


def test_no_answer_is_not_waited_for_without_end(
    kernel: tuple[socket.socket, ConnectionReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "ANSWER_TIMEOUT_S", 0.05)
    with pytest.raises(TimeoutError):
        kernel[1].read()
