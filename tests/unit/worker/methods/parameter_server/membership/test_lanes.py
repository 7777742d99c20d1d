"""Lanes of a server: each client's message for itself, whatever the others do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.methods.parameter_server.membership import lanes as server_lanes
from testbed.worker.methods.parameter_server.membership.admission import Admission
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.membership.lanes import Lanes
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Frame, Kind
from testbed.worker.methods.parameter_server.transport.streams import receive
from tests.unit.worker.server_net import GARBAGE, KEY, LARGE, PACE, PATIENCE_S, SMALL, Net, expected_of, frame_of, soon
from tests.waiting import in_background, joined


class _NoDoor(Admission):
    def __init__(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def lanes(net: Net, *, wait_s: float = PATIENCE_S) -> Iterator[Lanes]:
    clock, stopwatch = PhaseClock(), Stopwatch()
    connected = ConnectedClients(
        net.server, _NoDoor(), message_s=wait_s, training_s=0.0, clock=clock, stopwatch=stopwatch
    )
    made = Lanes(connected, wait_s=wait_s, clock=clock, stopwatch=stopwatch)
    try:
        yield made
    finally:
        made.close()
        net.close()


def _send(made: Lanes, net: Net, client: int) -> None:
    made.send(client, frame_of(Kind.MODEL, SERVER, net.schema).pack(KEY), expected_of(Kind.UPDATE, net.schema))


def _model(net: Net, client: int) -> Frame:
    return receive(net.clients[client], net.from_server, deadline_s=soon(), pace=PACE)


def _sender(found: tuple[int, Frame] | None) -> int | None:
    assert found is None or found[0] == found[1].sender
    return None if found is None else found[0]


def test_who_does_not_read_delays_nobody_and_gets_all_of_it_later() -> None:
    """A model of more than the kernel keeps: it is under way while others come and go."""
    net = Net(LARGE)
    net.join(0, 1)
    with lanes(net) as made:
        _send(made, net, 0)
        _send(made, net, 1)

        def turns() -> None:
            for _ in range(2):
                _model(net, 1)
                net.update(1)

        quick = in_background(turns, "of the quick client")
        assert _sender(made.next()) == 1
        _send(made, net, 1)
        assert _sender(made.next()) == 1
        joined(quick)

        def turn() -> None:
            assert _model(net, 0).tensors[0].raw_bytes == LARGE.raw_bytes
            net.update(0)

        slow = in_background(turn, "of the slow client")
        assert _sender(made.next()) == 0
        joined(slow)
        assert made.next() is None


def test_deadlines_do_not_come_nearer_while_the_server_does_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    net, ahead_s = Net(SMALL), [0.0]
    net.join(0, 1)
    monkeypatch.setattr(server_lanes, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0]))
    with lanes(net) as made:
        _send(made, net, 0)
        _send(made, net, 1)
        net.update(0)
        ahead_s[0] += 2 * PATIENCE_S
        assert _sender(made.next()) == 0
        assert made.connected.clients == [0, 1]
        net.update(1)
        assert _sender(made.next()) == 1


def test_who_sends_nothing_in_time_or_no_frame_is_out() -> None:
    net = Net(SMALL)
    net.join(0, 1, 2)
    with lanes(net, wait_s=0.2) as made:
        for client in range(3):
            _send(made, net, client)
        net.update(0)
        net.clients[2].socket.sendall(GARBAGE)
        assert _sender(made.next()) == 0
        assert made.next() is None
        assert made.connected.clients == [0]
        assert "refused (late)" in made.connected.left["1"] and "refused (magic)" in made.connected.left["2"]
        assert _model(net, 1).kind is Kind.MODEL
        assert "refused (late)" in str(net.told(1))


def test_nothing_is_due_from_who_was_released_and_what_is_under_way_arrives() -> None:
    net = Net(LARGE)
    net.join(0, 1)
    with lanes(net) as made:
        made.send(0, frame_of(Kind.MODEL, SERVER, LARGE).pack(KEY), expected_of(Kind.UPDATE, LARGE))
        made.release(0)
        made.release(1)  # of whom nothing is due
        reader = in_background(lambda: _model(net, 0), "of the reader")
        assert made.next() is None
        joined(reader)
        assert made.connected.clients == [0, 1] and not made.connected.left
