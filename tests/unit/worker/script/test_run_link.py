"""A user's own script and the run around it: the socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.core.record.telemetry import Channel, Welcome
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.script.run_link import run_link
from tests.waiting import in_background, joined
from topologies import lan

SPEC = RunSpec(
    topology=lan.build(workers=2),
    workload=Part("script", "x.Y"),
    strategy=Part("ddp", "x.Y"),
    compressor=Part("topk", "compressors.topk.TopK", {"density": 0.1}),
    device=Part("native", "x.Y"),
    steps=1,
    seed=5,
)
WELCOME = Welcome(spec=SPEC.to_json(), rank=1, world_size=2, interface="lo", master_address="127.0.0.1", master_port=1)


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = str(tmp_path / "s.sock")
    monkeypatch.setenv("LONGHAUL_SOCKET", path)
    monkeypatch.setenv("LONGHAUL_NODE", "here-1")
    run_link.cache_clear()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen(1)
        yield server
    run_link.cache_clear()


def _answer(server: socket.socket, welcome: bool, heard: list[dict[str, Any]]) -> threading.Thread:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            channel = Channel(connection)
            heard.append(channel.receive() or {})
            if welcome:
                channel.send_welcome(WELCOME)
                heard.append(channel.receive() or {})

    return in_background(serve, "of the run")


def test_a_script_in_a_run_learns_its_network_seed_and_compressor(listener: socket.socket) -> None:
    heard: list[dict[str, Any]] = []
    thread = _answer(listener, True, heard)
    link = run_link()
    assert link is not None and link is run_link()
    assert (link.topology, link.compressor, link.seed) == (SPEC.topology, SPEC.compressor, 5)
    link.tell({"event": "payload", "payload_bytes": 7})
    joined(thread)
    assert heard == [{"event": "hello", "node": "here-1"}, {"event": "payload", "payload_bytes": 7}]
    with pytest.raises(RunError, match="the run is gone and was not told of 'payload'"):
        link.tell({"event": "payload", "payload_bytes": 7})
    link._channel.connection.close()


def test_a_run_that_does_not_answer_is_no_run_that_is_not_there(listener: socket.socket) -> None:
    thread = _answer(listener, False, [])
    with pytest.raises(RunError, match=r"node here-1: the run at .*s\.sock gave no welcome: it closed the connection"):
        run_link()
    joined(thread)


def test_a_script_outside_a_run_is_on_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_link.cache_clear()
    monkeypatch.setenv("LONGHAUL_SOCKET", str(tmp_path / "none.sock"))
    assert run_link() is None
    run_link.cache_clear()
    monkeypatch.setenv("LONGHAUL_NODE", "here-1")
    assert run_link() is None
    run_link.cache_clear()
