"""How clients come in and back, over real sockets; whoever says nothing keeps nobody out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.transport import streams
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal
from testbed.worker.methods.parameter_server.transport.frames import Kind
from testbed.worker.methods.parameter_server.transport.streams import Connection, Gone, Listener, connect, receive
from tests.distributed.harness import port_of_ones_own
from tests.unit.worker.server_net import GARBAGE, HOST, PACE, Net, expected_of, frame_of, soon
from tests.waiting import in_background, joined


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.close()


def test_who_comes_back_takes_the_place_of_an_older_connection(net: Net) -> None:
    net.join(0, 1)
    older = net.server[1]
    again = net.hail(1)
    net.admit(1)
    assert older.closed and net.server[1] is not older
    assert net.told(1).reason is Refusal.REPLACED
    net.clients[1] = again
    for client in (0, 1):
        net.update(client)
    assert dict(net.gather()) == {client: frame_of(Kind.UPDATE, client) for client in (0, 1)}


def test_newcomers_that_say_nothing_or_garbage_keep_nobody_out() -> None:
    net = Net(most_newcomers=3)
    silent = [net.connect(7) for _ in range(5)]
    silent[4].socket.sendall(GARBAGE)
    net.join(0)
    net.clients[9] = net.hail(9)  # not among those who may come
    net.join(1)
    assert sorted(net.server) == [0, 1]
    assert net.told(9).reason is Refusal.SENDER
    net.listener.close()
    for connection in silent:
        with pytest.raises(Gone):
            receive(connection, net.from_server, deadline_s=soon(), pace=PACE)
    net.close()


def test_a_newcomer_has_so_long_to_say_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(hello_s=0.015)
    net.clients[0] = net.connect(0)
    passed = itertools.count()  # each look at the clock is a hundredth of a second later, however busy the machine is
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: next(passed) / 100))
    hellos = net.listener.admit(net.server, expected_of(Kind.HELLO), deadline_s=0.2)
    assert list(hellos) == []
    assert net.told(0).reason is Refusal.LATE
    net.close()


def test_a_client_waits_for_a_server_that_is_not_there_yet_or_not_again() -> None:
    with port_of_ones_own() as port:
        with pytest.raises(Gone, match=f"no server at 127.0.0.1 port {port} by the deadline"):
            connect(HOST, port, own=0, deadline_s=time.monotonic() + 0.05, charge=lambda _: None)
        found: list[Connection] = []
        thread = in_background(
            lambda: found.append(connect(HOST, port, own=0, deadline_s=soon(), charge=lambda _: None, retry_s=0.01))
        )
        with Listener(HOST, port, charge=lambda _: None, hello_s=1, most_newcomers=1):
            joined(thread)
        found[0].close()


def test_an_address_that_cannot_be_had_is_named(net: Net) -> None:
    with pytest.raises(RunError, match=f"cannot listen at 127.0.0.1 port {net.listener.port}: Address already in use"):
        Listener(HOST, net.listener.port, charge=lambda _: None, hello_s=1, most_newcomers=1)
