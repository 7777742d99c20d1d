"""Ranks find each other at the run's rendezvous, and can pass nothing more there than that takes."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.record.telemetry import Channel
from testbed.orchestrator.emulation.containers import rendezvous_service
from testbed.orchestrator.emulation.containers.rendezvous_service import (
    MAX_CONNECTIONS,
    MAX_NAME_CHARACTERS,
    MAX_VALUE_BYTES,
    NODE_BYTES,
    PAIR_BYTES,
    RendezvousService,
)
from testbed.orchestrator.run.workers.listeners import WorkerListeners
from testbed.worker.communication.rendezvous import Rendezvous, ServiceStore

NODES = ("a", "b")


@contextlib.contextmanager
def connected(service: RendezvousService, node: str = "a") -> Iterator[Channel]:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=service.serve, args=(node, Channel(theirs)), daemon=True)
    thread.start()
    with ours:
        yield Channel(ours)
    thread.join(60)
    assert not thread.is_alive(), "the service still serves who has gone"


def ask(channel: Channel, **request: Any) -> dict[str, Any]:
    channel.send(request)
    answer = channel.receive()
    assert answer is not None
    return answer


@pytest.fixture
def places() -> Iterator[Path]:
    """A folder of a short name: a Unix socket's path holds 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits."""
    monkeypatch.setattr(rendezvous_service, "WAIT_S", 0.0)


@pytest.mark.usefixtures("quick")
def test_what_one_node_puts_down_another_gets() -> None:
    service = RendezvousService(2)
    with connected(service, "a") as a, connected(service, "b") as b:
        assert ask(b, do="get", name="k") == {"value": None}
        assert ask(a, do="put", name="k", value="00ff") == {"value": None}
        assert ask(b, do="get", name="k") == {"value": "00ff"}
        assert [ask(each, do="add", name="n", amount=2)["value"] for each in (a, b, a)] == [2, 4, 6]
    counts = {event["node"]: event for event in service.events()}
    assert (counts["a"]["put_bytes"], counts["b"]["put_bytes"]) == (3 + 2 + 2, 2)
    assert counts["a"]["training_bytes"] == 0 and counts["b"]["requests"] == 3


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"do": "list", "name": "k"},
        {"do": ["put"], "name": "k"},
        {"do": "get"},
        {"do": "get", "name": ""},
        {"do": "get", "name": "k" * (MAX_NAME_CHARACTERS + 1)},
        {"do": "get", "name": "é"},
        {"do": "get", "name": 7},
        {"do": "put", "name": "k"},
        {"do": "put", "name": "k", "value": "abc"},
        {"do": "put", "name": "k", "value": "zz"},
        {"do": "put", "name": "k", "value": "00" * (MAX_VALUE_BYTES + 1)},
        {"do": "add", "name": "k", "amount": "1"},
        {"do": "add", "name": "k", "amount": True},
        {"do": "add", "name": "k", "amount": 2**60},
        {"do": "add", "name": "text", "amount": 1},
        {"do": "turn", "number": -1},
        {"do": "turn", "number": 1e9},
    ],
)
def test_a_request_that_is_none_is_refused_and_counted(request_: dict[str, Any]) -> None:
    service = RendezvousService(2)
    with connected(service) as channel:
        ask(channel, do="put", name="text", value="61")
        assert "refused" in ask(channel, **request_)
        assert ask(channel, do="get", name="text") == {"value": "61"}, "it goes on"
    assert service.events()[0]["refused"] == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("piece_bytes", [1, 1000, MAX_VALUE_BYTES])
def test_a_node_can_put_down_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    """Whatever the size of its values, and under one name as under many."""
    monkeypatch.setattr(rendezvous_service, "NODE_BYTES", 3000 if piece_bytes < MAX_VALUE_BYTES else NODE_BYTES)
    monkeypatch.setattr(rendezvous_service, "REQUESTS_S", 1e9)
    service = RendezvousService(2)
    most = rendezvous_service.NODE_BYTES + 2 * PAIR_BYTES
    with connected(service, "a") as a, connected(service, "b") as b:
        for _ in range(most // piece_bytes + 2):
            answer = ask(a, do="put", name="k", value="00" * piece_bytes)
        assert "ranks send each other data by links" in answer["refused"]
        assert ask(b, do="put", name="k", value="00") == {"value": None}, "another node has room of its own"
    assert service.events()[0]["put_bytes"] <= most


@pytest.mark.usefixtures("quick")
def test_bytes_while_training_are_told_apart() -> None:
    service = RendezvousService(2)
    with connected(service) as channel:
        ask(channel, do="put", name="before", value="00" * 100)
        service.begin()
        ask(channel, do="put", name="after", value="00" * 50)
    (event,) = service.events()
    assert (event["put_bytes"], event["training_bytes"]) == (6 + 100 + 5 + 50, 55)


@pytest.mark.usefixtures("quick")
def test_what_is_no_message_ends_the_connection_and_no_other() -> None:
    service = RendezvousService(2)
    for line in (b"hello\n", b"[1]\n", b"[" * 5000 + b"\n", b"x" * (2 << 20)):
        with connected(service) as channel:
            with contextlib.suppress(ConnectionError):
                channel.connection.sendall(line)
            with contextlib.suppress(ConnectionError):
                assert channel.receive() is None
    with connected(service) as channel:
        assert ask(channel, do="get", name="k") == {"value": None}
    assert service.events()[0]["refused"] == 4


@pytest.mark.usefixtures("quick")
def test_a_turn_is_one_ranks_until_it_is_over_or_gone() -> None:
    service = RendezvousService(2)
    with connected(service, "a") as a:
        with connected(service, "b") as b:
            assert ask(b, do="turn", number=3) == {"value": True}
            assert ask(a, do="turn", number=3) == {"value": False}
            assert ask(a, do="turn", number=4) == {"value": True}
            assert ask(a, do="over", number=3) == {"value": True}, "it is not its to give back"
            assert ask(a, do="turn", number=3) == {"value": False}
        assert ask(a, do="turn", number=3) == {"value": True}


@pytest.mark.usefixtures("quick")
def test_turns_go_in_the_order_in_which_ranks_came() -> None:
    service = RendezvousService(3)
    with connected(service, "a") as a, connected(service, "b") as b, connected(service, "c") as c:
        assert [ask(each, do="turn", number=3)["value"] for each in (a, b, c)] == [True, False, False]
        assert [ask(each, do="over", number=3)["value"] for each in (a, c)] == [True, True], "who waits may give it up"
        assert [ask(each, do="turn", number=3)["value"] for each in (a, c, b)] == [False, False, True]
        ask(b, do="over", number=3)
        assert [ask(each, do="turn", number=3)["value"] for each in (b, c, a)] == [False, False, True]


@pytest.mark.usefixtures("quick")
def test_turns_take_nothing_of_the_requests_that_a_node_may_make(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    monkeypatch.setattr(rendezvous_service, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=slept_s.append))
    monkeypatch.setattr(rendezvous_service, "REQUESTS_S", 2.0)
    service = RendezvousService(1)
    most = 2 + rendezvous_service.PAIR_REQUESTS
    with connected(service) as channel:
        for _ in range(2 * most):
            ask(channel, do="turn", number=3)
            ask(channel, do="over", number=3)
        for _ in range(most + 1):
            ask(channel, do="get", name="k")
    assert [seconds for seconds in slept_s if seconds] == [0.5]


def test_a_node_has_so_many_connections() -> None:
    service = RendezvousService(2)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(service)) for _ in range(MAX_CONNECTIONS)]
        assert all("value" in ask(each, do="put", name="k", value="00") for each in held)
        one_more = stack.enter_context(connected(service))
        with contextlib.suppress(ConnectionError):
            one_more.send({"do": "get", "name": "k"})
            assert one_more.receive() is None
    with connected(service) as channel:
        assert ask(channel, do="get", name="k") == {"value": "00"}


def test_ranks_meet_by_sockets_of_their_own(places: Path) -> None:
    service = RendezvousService(2)
    listeners = WorkerListeners(service.serve)
    try:
        for node in NODES:
            listeners.open_for(node, places / f"{node}.meet")
        a, b = (
            Rendezvous(rank, 0, address="", port=0, store="", timeout_s=60.0, service=str(places / f"{node}.meet"))
            for rank, node in enumerate(NODES)
        )
        found: list[bytes] = []
        waiting = threading.Thread(target=lambda: found.append(b.get("place")), daemon=True)
        waiting.start()
        a.put("place", b"10.0.0.1 7")
        waiting.join(60)
        assert found == [b"10.0.0.1 7"]
        a.put("place", b"10.0.0.2 7")
        assert b.get("place") == b"10.0.0.2 7", "the latest"
        first, second, again = a.turn(0), b.turn(1), b.turn(0)
        assert first and second and again
        with first.held(), second.held():
            pass
        with again.held():
            pass
        a.close()
        b.close()
    finally:
        listeners.close()


def test_a_value_that_never_comes_is_named(places: Path, quick: None) -> None:
    listeners = WorkerListeners(RendezvousService(1).serve)
    try:
        listeners.open_for("a", places / "a.meet")
        store = ServiceStore(str(places / "a.meet"), 0.0)
        with pytest.raises(RuntimeError, match="nobody has put 'k' at the rendezvous within 0 s"):
            store.get("k")
        store.close()
    finally:
        listeners.close()
