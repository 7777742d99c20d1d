from __future__ import annotations

import socket
import threading

import pytest

from testbed.core.record.telemetry import Channel
from testbed.worker.process import session
from tests.waiting import HANG_S, joined


@pytest.mark.parametrize(
    "line", [b"[1]", b"7", b"{}", b'{"event": "go", "t0_s": null}', b'{"event": "go"}', b"{", b"\xff"]
)
def test_what_is_no_order_ends_the_worker(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    monkeypatch.setattr(session, "_leave", lambda reason, status: ended.set())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        orders = session.Orders(Channel(theirs))
        ours.sendall(line + b"\n")
        assert ended.wait(HANG_S), "the worker goes on"
        joined(orders.thread)
        assert not orders.go.is_set()


def test_an_order_to_go_is_heard() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            orders = session.Orders(Channel(theirs))
            Channel(ours).send({"event": "go", "t0_s": 12.5})
            assert orders.go.wait(HANG_S), "the order was not heard"
            assert orders.t0_s == 12.5
            orders.leaving = True
        joined(orders.thread)


def test_who_computes_is_told_to_rest_before_it_is_told_to_go() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            orders = session.Orders(Channel(theirs))
            for event, told, yet in (("busy", orders.busy, orders.rest), ("rest", orders.rest, orders.go)):
                Channel(ours).send({"event": event})
                assert told.wait(HANG_S), f"{event} was not heard"
                assert not yet.is_set()
            orders.leaving = True
        joined(orders.thread)
