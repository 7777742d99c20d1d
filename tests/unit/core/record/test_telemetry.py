from __future__ import annotations

import socket

import pytest

from testbed.core.record.telemetry import Channel, Welcome


def test_messages_arrive_whole_and_in_order() -> None:
    left, right = socket.socketpair()
    with left, right:
        sender, receiver = Channel(left), Channel(right)
        sent = [{"event": "step", "text": "x" * size} for size in (0, 10, 10_000, 70_000)]
        for message in sent:
            sender.send(message)
        left.shutdown(socket.SHUT_WR)
        assert list(receiver.messages()) == sent
        assert receiver.receive() is None


def test_a_line_in_pieces_is_one_message() -> None:
    left, right = socket.socketpair()
    with left, right:
        receiver = Channel(right)
        for piece in (b'{"event": ', b'"go"}\n{"eve', b'nt": "done"}\n'):
            left.sendall(piece)
        assert receiver.receive() == {"event": "go"}
        assert receiver.receive() == {"event": "done"}


def test_answering_between_two_lines_loses_neither() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b'{"event": "one"}\n{"event": "two"}\n')
        channel = Channel(right)
        assert channel.receive() == {"event": "one"}
        channel.send({"event": "reply"})
        assert channel.receive() == {"event": "two"}


def test_a_number_that_json_lacks_is_not_sent() -> None:
    left, right = socket.socketpair()
    with left, right, pytest.raises(ValueError, match="JSON"):
        Channel(left).send({"loss": float("nan")})


def test_a_welcome_arrives_as_an_event() -> None:
    left, right = socket.socketpair()
    with left, right:
        welcome = Welcome(spec={}, rank=1, world_size=2, interface="eth0", master_address="10.0.0.1", master_port=29500)
        Channel(left).send_welcome(welcome)
        message = Channel(right).receive()
    assert message is not None
    assert message["event"] == "welcome"
    assert Welcome(**message) == welcome
