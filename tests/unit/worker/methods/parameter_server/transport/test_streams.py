"""Frames over real sockets: whatever one client does, the others' frames arrive."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from testbed.worker.methods.parameter_server.transport import transfers
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import parse
from testbed.worker.methods.parameter_server.transport.frames import HEADER_BYTES, SERVER, Frame, Kind, frame_bytes
from testbed.worker.methods.parameter_server.transport.streams import Gone, Pace, receive, scatter, send
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema, TensorSpec
from tests.unit.worker.server_net import (
    GARBAGE,
    KEY,
    LARGE,
    MEDIUM,
    PACE,
    PATIENCE_S,
    SMALL,
    STRICT,
    Net,
    frame_of,
    packed,
    soon,
)
from tests.waiting import in_background, joined


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.close()


@pytest.fixture
def large_net() -> Iterator[Net]:
    made = Net(LARGE)
    yield made
    made.close()


def test_a_round_there_and_back_is_counted_to_the_byte(net: Net) -> None:
    net.join(0, 1, 2)
    before = dict(net.sent)
    assert before == {SERVER: 0, **dict.fromkeys(range(3), frame_bytes(0, 0))}
    model = frame_of(Kind.MODEL, SERVER)
    ends = dict(scatter(net.server, dict.fromkeys(net.server, model.pack(KEY)), deadline_s=soon(), pace=PACE))
    whole = frame_bytes(1, SMALL.raw_bytes)
    assert ends == dict.fromkeys(range(3), whole)
    for client, connection in net.clients.items():
        assert receive(connection, net.from_server, deadline_s=soon(), pace=PACE) == model
        net.update(client)
    assert dict(net.gather()) == {client: frame_of(Kind.UPDATE, client) for client in range(3)}
    assert {who: count - before[who] for who, count in net.sent.items()} == {
        SERVER: 3 * whole,
        **dict.fromkeys(range(3), whole),
    }
    for mine, theirs in ((net.server[0], net.clients[0]), (net.clients[0], net.server[0])):
        assert mine.received_bytes == theirs.sent_bytes


HALF = len(packed(frame_of(Kind.UPDATE, 1))) // 2
OTHER = Schema.of([TensorSpec("weight", (2, 2), "float32")])
TEN_GB = bytearray(packed(frame_of(Kind.UPDATE, 1))[:HEADER_BYTES])
TEN_GB[24:32] = struct.pack("!Q", 10 * 10**9)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (GARBAGE, Refusal.MAGIC),
        (packed(dataclasses.replace(frame_of(Kind.UPDATE, 1), schema_hash=OTHER.hash)), Refusal.SCHEMA),
        (packed(frame_of(Kind.UPDATE, 1, round_=6)), Refusal.ROUND),
        (packed(frame_of(Kind.UPDATE, 1), b"x" * 32), Refusal.MAC),
        (packed(frame_of(Kind.UPDATE, 2)), Refusal.SENDER),
        (bytes(TEN_GB), Refusal.LENGTH),
        (packed(frame_of(Kind.HELLO, 1)), Refusal.KIND),
    ],
    ids=["garbage", "another model", "yesterday's", "another key", "another client's", "10 GB", "another kind"],
)
def test_what_one_client_must_not_send_is_refused_by_name_and_the_others_frames_arrive(
    net: Net, sent: bytes, reason: Refusal
) -> None:
    net.join(0, 1, 2)
    net.clients[1].socket.sendall(sent)
    net.update(0)
    net.update(2)
    ends = dict(net.gather())
    refused = ends.pop(1)
    assert ends == {client: frame_of(Kind.UPDATE, client) for client in (0, 2)}
    assert isinstance(refused, Refused) and refused.reason is reason
    assert net.told(1).reason is reason
    assert net.server[1].closed and not net.server[0].closed


def test_who_is_refused_while_more_of_it_is_under_way_reads_why_and_then_an_orderly_end(net: Net) -> None:
    net.join(1)
    client = net.clients[1].socket
    client.setblocking(True)
    client.sendall(GARBAGE)
    list(net.gather())
    said = bytearray()
    while data := client.recv(2**16):  # a reset would raise
        said += data
    assert parse(said, net.from_server).reason is Refusal.MAGIC


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("sent_bytes", [0, 10, HALF])
def test_a_client_that_dies_is_gone_and_comes_back(net: Net, sent_bytes: int, reset: bool) -> None:
    net.join(0, 1)
    client = net.clients[1].socket
    client.sendall(packed(frame_of(Kind.UPDATE, 1))[:sent_bytes])
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    net.update(0)
    ends = dict(net.gather())
    assert isinstance(ends[1], Gone) and not ends[1].bye and ends[0] == frame_of(Kind.UPDATE, 0)
    assert isinstance(dict(net.gather(deadline_s=0.0))[1], Gone)  # it stays so
    net.join(0, 1)
    net.update(0)
    net.update(1)
    assert dict(net.gather()) == {client: frame_of(Kind.UPDATE, client) for client in (0, 1)}


def test_a_client_that_leaves_in_good_order_says_so(net: Net) -> None:
    net.join(0)
    send(net.clients[0], frame_of(Kind.BYE, 0).pack(KEY), net.from_server, deadline_s=soon(), pace=PACE)
    ((_, end),) = net.gather()
    assert isinstance(end, Gone) and end.bye and end.reason is None


@pytest.mark.parametrize("sent_bytes", [0, HALF])
def test_at_the_deadline_what_is_there_is_taken_and_who_is_silent_is_refused(net: Net, sent_bytes: int) -> None:
    net.join(0, 1)
    net.clients[1].socket.sendall(packed(frame_of(Kind.UPDATE, 1))[:sent_bytes])
    net.update(0)
    ends = dict(net.gather(deadline_s=0.0))
    assert ends[0] == frame_of(Kind.UPDATE, 0)
    assert isinstance(ends[1], Refused) and ends[1].reason is Refusal.LATE
    assert f"{sent_bytes} bytes" in str(ends[1])
    assert net.told(1).reason is Refusal.LATE


@pytest.mark.parametrize("stalls", [False, True])
def test_one_byte_at_a_time_does_not_hold_up_a_round(stalls: bool) -> None:
    net = Net(MEDIUM)
    net.join(0, 1)
    client = net.clients[1].socket
    client.setblocking(True)
    over = threading.Event()

    def trickle() -> None:
        try:
            for byte in packed(frame_of(Kind.UPDATE, 1, MEDIUM))[1:]:
                if over.wait(0.01):
                    return
                client.sendall(bytes([byte]))
        except OSError:
            pass  # the server closed

    client.sendall(b"L")
    net.update(0)
    thread = in_background(over.wait if stalls else trickle)
    ends = dict(net.gather(pace=STRICT))
    over.set()
    joined(thread)
    refused = ends.pop(1)
    assert ends == {0: frame_of(Kind.UPDATE, 0, MEDIUM)}
    assert isinstance(refused, Refused) and refused.reason is Refusal.SLOW
    net.close()


def test_frames_come_in_the_order_in_which_they_are_whole_and_the_callers_time_is_nobodys_delay(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s = [0.0]
    monkeypatch.setattr(transfers, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0]))
    net.join(0, 1)
    update = packed(frame_of(Kind.UPDATE, 0))
    net.clients[0].socket.sendall(update[:HALF])
    net.update(1)
    ends = net.gather()
    assert next(ends) == (1, frame_of(Kind.UPDATE, 1))
    ahead_s[0] += 2 * PATIENCE_S  # as long as decoding takes: beyond the deadline, and two windows of the pace
    late = threading.Timer(0.1, net.clients[0].socket.sendall, [update[HALF:]])
    late.start()
    try:
        assert list(ends) == [(0, frame_of(Kind.UPDATE, 0))]
    finally:
        late.cancel()
        joined(late)


def test_of_two_frames_in_one_segment_the_second_waits_for_its_round(net: Net) -> None:
    net.join(0)
    net.clients[0].socket.sendall(b"".join(packed(frame_of(Kind.UPDATE, 0, round_=r)) for r in (7, 8)))
    assert list(net.gather(round_=7)) == [(0, frame_of(Kind.UPDATE, 0))]
    assert list(net.gather(round_=8)) == [(0, frame_of(Kind.UPDATE, 0, round_=8))]


def test_who_stops_asking_closes_what_is_under_way_and_keeps_what_has_ended(net: Net) -> None:
    net.join(0, 1)
    net.update(0)
    ends = net.gather()
    assert next(ends)[0] == 0
    ends.close()  # type: ignore[attr-defined]
    assert net.server[1].closed and not net.server[0].closed


def test_a_client_learns_in_the_midst_of_its_upload_why_it_is_refused(large_net: Net) -> None:
    large_net.join(0)
    ends: list[tuple[int, Frame | Refused | Gone]] = []
    thread = in_background(lambda: ends.extend(large_net.gather(round_=8)))
    with pytest.raises(Gone, match="round 7; this is round 8") as caught:
        large_net.update(0)
    joined(thread)
    assert caught.value.reason is Refusal.ROUND
    assert isinstance(ends[0][1], Refused) and ends[0][1].reason is Refusal.ROUND
    assert large_net.server[0].received_bytes < 3 * 2**20


def test_a_client_that_reads_nothing_delays_no_other(large_net: Net) -> None:
    large_net.join(0, 1, 2)
    model = frame_of(Kind.MODEL, SERVER, LARGE)
    received: dict[int, Frame] = {}

    def take(client: int) -> None:
        connection = large_net.clients[client]
        received[client] = receive(connection, large_net.from_server, deadline_s=soon(), pace=PACE)

    threads = [in_background(functools.partial(take, client)) for client in (0, 2)]
    frames = dict.fromkeys(large_net.server, model.pack(KEY))
    ends = scatter(large_net.server, frames, deadline_s=soon(), pace=PACE)
    first = dict(itertools.islice(ends, 2))
    assert first == dict.fromkeys((0, 2), frame_bytes(1, LARGE.raw_bytes))
    joined(*threads)
    assert received == {0: model, 2: model}


def test_who_reads_nothing_is_not_sent_to_for_long(large_net: Net) -> None:
    large_net.join(0)
    model = frame_of(Kind.MODEL, SERVER, LARGE)
    ((_, end),) = scatter(large_net.server, {0: model.pack(KEY)}, deadline_s=soon(), pace=STRICT)
    assert isinstance(end, Refused) and end.reason is Refusal.SLOW and large_net.server[0].closed


def test_a_bad_pace_is_refused_with_all_its_faults() -> None:
    with pytest.raises(ValueError, match=r"(?s)least_bytes_s=-1.*window_s=0"):
        Pace(least_bytes_s=-1, window_s=0)
