"""A server that dies at some place of a round, and one that takes its place: nobody can tell by the parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from compressors.parts import codec_process
from compressors.parts.codec_process import CodecProcess
from testbed.worker.communication.communicator import Communicator
from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.checkpoint import lasting_server
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.membership.admission import invite_again
from testbed.worker.methods.parameter_server.membership.invitation import Invitation
from testbed.worker.methods.parameter_server.membership.reconnection import Reconnection
from testbed.worker.methods.parameter_server.server import Server
from testbed.worker.methods.parameter_server.service import Service
from testbed.worker.methods.parameter_server.transport.connection import Gone
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal
from testbed.worker.methods.parameter_server.transport.frame_parser import parse
from testbed.worker.methods.parameter_server.transport.frames import Kind
from tests.unit.worker.recorded import taken
from tests.unit.worker.server_models import bits
from tests.unit.worker.server_net import HOST, KEY, PATIENCE_S
from tests.unit.worker.server_rounds import PARAMS, SZ3, Rounds, batch_of

ROUNDS, DEATH = 5, 2
TOPK = {"codec": "topk", "feedback": True}
CODECS: dict[str, dict[str, Any]] = {
    "raw": {},
    "sz3": {"up": SZ3 | {"feedback": True}, "down": SZ3, "schedule": Fixed(alpha=0.1)},
    "params": {"up": PARAMS, "down": PARAMS | {"codec": "fp16"}},
    "gradients": {"up": TOPK | {"payload": "grad"}},
    "adaptive": {"up": SZ3, "down": SZ3, "schedule": AdaptiveBound()},
}
PLACES = ("to nobody", "to one", "one came", "all came", "last, to nobody")


class _Died(Exception):
    pass


class _Meeting:
    def __init__(self, folder: Path) -> None:
        self.folder, self._there = folder, dict[str, bytes]()

    def put(self, name: str, value: bytes) -> None:
        self._there[name] = value

    def get(self, name: str) -> bytes:
        return self._there[name]


class Lasting(Rounds):
    """Clients live in threads of their own, the server in the test's."""

    def __init__(self, folder: Path, **given: Any) -> None:
        super().__init__(**given)
        self.rendezvous, self.round, self.lives = _Meeting(folder), -1, 0
        told = Invitation(key=KEY, port=self.admission.port)
        told.put_down(cast(Any, self.rendezvous))
        for client in self.clients:
            client._reconnection = Reconnection(self.comm(client.number + 1), self.wire, PATIENCE_S, told)

    def comm(self, rank: int) -> Communicator:
        found = SimpleNamespace(
            rank=rank, address=HOST, charge=_nothing, rendezvous=self.rendezvous, is_back=self.lives > 0
        )
        return cast(Communicator, found)

    def serve(self, until: Callable[[Server], None]) -> None:
        """Through all rounds, as often as it dies.

        Args:
            until: is given each new server.
        """
        while True:
            until(self.begin())
            try:
                while self.round + 1 < ROUNDS:
                    self.round += 1
                    self.server.begin(self.round)
                    self.server.collect(self.round)
                self.server.send_last(ROUNDS)
            except _Died:
                self.server.close()
                self.lives += 1
            else:
                return

    def begin(self) -> Server:
        if self.lives:
            self.forget_server()
        service = SimpleNamespace(
            context=SimpleNamespace(comm=self.comm(0), optimizer=self.optimizers[0]), server=self._of_service
        )
        server, self.round = lasting_server(cast(Service, service), None, lambda: self.round)
        return server

    def _of_service(self, held_out: Tensor | None, round_: int | None = None) -> Server:
        if round_ is None:
            return self.server
        _, admission = invite_again(self.comm(0), lambda key: self.wire, round_, PATIENCE_S)
        return self.new_server(admission)


def _nothing(sent_bytes: int) -> None:
    pass


@contextmanager
def lasting(folder: Path, **given: Any) -> Iterator[Lasting]:
    made = Lasting(folder, **given)
    try:
        yield made
    finally:
        made.close()


def _live(client: Client) -> list[Any]:
    """What a client ends with, and what it keeps of its codec."""
    process = CodecProcess()
    codec_process.use(process)
    try:
        for number in range(ROUNDS):
            client.begin(number)
            client._training.step(batch_of(client.number, number))
            client.end(number)
        client.begin(ROUNDS)
    finally:
        process.close()
    return bits(client.reference)


def _trained(folder: Path, until: Callable[[Server], None], given: dict[str, Any]) -> list[list[Any]]:
    folder.mkdir()
    with lasting(folder, **deepcopy(given)) as played, ThreadPoolExecutor(2) as pool:
        living = [pool.submit(_live, client) for client in played.clients]
        played.serve(until)
        return [one.result() for one in living] + [bits(played.model.values)]


def _mortal(place: str, deaths: list[int]) -> Callable[[Server], None]:
    """Has a server die at `place` of one of the rounds in `deaths`, which are taken out."""

    def until(server: Server) -> None:
        send, up, end, connected = server.connected.send, server._intake._up, server._end, server.connected
        decode = up.decode

        def is_due() -> bool:
            due = server.begun is not None and server._taken is None and server.begun.round in deaths
            if due:
                deaths.remove(server.begun.round)  # type: ignore[union-attr]
            return due

        def sending(frames: Any) -> None:
            if place in ("to nobody", "to one", "last, to nobody") and frames and is_due():
                if place == "to one":
                    send({0: frames[0]})
                raise _Died
            send(frames)

        def decoding(*given: Any, **named: Any) -> Any:
            if place == "one came" and is_due():
                raise _Died
            return decode(*given, **named)

        def ending(*args: Any) -> None:
            end(*args)
            if place == "all came" and is_due():
                raise _Died

        connected.send, up.decode, server._end = sending, decoding, ending  # type: ignore[method-assign]

    return until


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Any]]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return {name: _trained(folder / name, lambda server: None, given) for name, given in CODECS.items()}


@pytest.mark.parametrize(
    ("codec", "place"),
    [*(("sz3", place) for place in PLACES), *((codec, "to one") for codec in CODECS if codec != "sz3")],
)
def test_one_that_takes_the_place_of_another_changes_no_bit(
    codec: str, place: str, undisturbed: dict[str, list[list[Any]]], tmp_path: Path
) -> None:
    deaths = [ROUNDS] if place.startswith("last") else [0, DEATH, DEATH + 1]
    found = _trained(tmp_path / "run", _mortal(place, deaths), CODECS[codec])
    assert not deaths, "it died each time"
    assert found == undisturbed[codec]


def test_a_client_that_the_first_had_put_out_is_not_waited_for_and_others_count(tmp_path: Path) -> None:
    with lasting(tmp_path) as played, ThreadPoolExecutor(1) as pool:
        played.clients[1].close()
        living = pool.submit(_live, played.clients[0])
        played.serve(_mortal("all came", [DEATH]))
        assert living.result() == bits(played.downlink.reference)
        notes = taken(played.server)
        assert played.lives == 1
        # A round that is done again is told again; the record keeps what was told first.
        assert {note["round"]: note["clients"] for note in notes[:-1]} == dict.fromkeys(range(ROUNDS), 1)
        assert "connection of client 1 is over" in notes[-1]["left"]["1"]


def test_once_all_have_the_last_model_and_are_gone_it_ends_alone(tmp_path: Path) -> None:
    with lasting(tmp_path, message_s=0.2) as played:
        server = played.begin()
        server.begin(0)
        for client in played.clients:
            client.begin(0)
            client._training.step(batch_of(client.number, 0))
            client.end(0)
        server.collect(0)
        server.send_last(1)
        played.lives += 1
        for client in played.clients:
            client.begin(1)
            client.close()
        held = bits(played.downlink.reference)
        other = played.begin()
        assert other is not server and other.begun is not None and other.begun.is_last
        other.collect(0)
        other.send_last(1)
        *_, note = taken(other)
        assert (note["event"], note["round"], set(note["left"])) == ("last_model", 1, set())
        assert bits(played.downlink.reference) == held


def test_what_a_client_says_of_the_model_it_has(tmp_path: Path) -> None:
    with lasting(tmp_path) as played:
        expected = played.wire.expected(Kind.HELLO)
        for held, epoch, round_ in ((None, 0, 0), (0, 0, 1), (6, 2, 7)):
            hello = parse(b"".join(played.wire.hello(1, held, epoch)), expected)
            assert (hello.sender, hello.round, hello.epoch) == (1, round_, epoch)


def test_who_comes_when_the_other_has_gone_on_is_too_late(tmp_path: Path) -> None:
    """Its update would be of yesterday, and what it holds not what differences are taken of."""
    with lasting(tmp_path) as played:
        played.begin().begin(0)
        for client in played.clients:
            client.begin(0)
        late, reconnection = played.clients[1], Reconnection(played.comm(2), played.wire, PATIENCE_S, None)
        late._connection.close()
        late._connection, _ = reconnection.find(0, 0)
        played.clients[0]._training.step(batch_of(0, 0))
        played.clients[0].end(0)
        played.server.collect(0)
        played.server.begin(1)
        assert played.server.connected.clients == [0]
        with pytest.raises(Gone) as caught:
            late.begin(1)
        assert caught.value.reason is Refusal.LATE


def test_without_another_server_a_client_is_out(tmp_path: Path) -> None:
    with lasting(tmp_path) as played:
        told = Invitation(key=KEY, port=played.admission.port)
        gone, begun_s = Gone("connection of the server is over"), time.monotonic()
        with pytest.raises(Gone, match="is over; and no server came in its place within"):
            Reconnection(played.comm(1), played.wire, 0.3, told).find(0, 0, gone)
        assert time.monotonic() - begun_s >= 0.3


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
