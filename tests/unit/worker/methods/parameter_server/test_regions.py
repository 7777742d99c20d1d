"""Servers of regions between rank 0 and clients: what a region comes to, and whom its losses concern."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from compressors.topk import TopK
from testbed.core.errors import Left
from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.membership.assignment import ServerAssignment
from testbed.worker.methods.parameter_server.region import RegionServer
from testbed.worker.methods.parameter_server.transport.connection import Gone
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal
from testbed.worker.methods.parameter_server.transport.frames import Kind, frame_bytes
from tests.unit.worker.communication.collectives.test_collectives import topology
from tests.unit.worker.recorded import taken
from tests.unit.worker.server_models import bits
from tests.unit.worker.server_rounds import SZ3, Rounds, agree, rounds

TWO = {1: [2, 3], 4: [5, 6, 7]}
"""Of eight clients: 0 is rank 0's, as are the servers of two regions, of two and of three clients."""
ONE = {0: [1, 2]}


def _weigh(played: Rounds) -> None:
    """Each trainer as much as its place says: the mean of means is no mean of regions."""
    for place, number in enumerate(played.trainers):
        played.clients[number]._training._context.spec.batch_size = 8 + 8 * place  # type: ignore[misc]


def _alone(region: RegionServer, number: int) -> None:
    """A round of a region whose clients do nothing."""
    region.begin(number)
    region.end(number)


def _notes(played: Rounds, region: int) -> list[dict[str, Any]]:
    return [note for note in taken(played.regions[region]) if note["event"] == "region_round"]


@pytest.mark.parametrize("payload", ["params", "delta", "grad"])
def test_means_of_regions_come_to_the_mean_of_all_clients_and_links_carry_one_message_a_region(payload: str) -> None:
    given: dict[str, Any] = {"up": {"payload": payload}, "down": {"payload": "params"}}
    with rounds(clients=6, **given) as flat, rounds(clients=8, served=TWO, **given) as played:
        for each in (flat, played):
            _weigh(each)
            initial = each.model.values
            connections = each.server.connected.connections
            before = [one.received_bytes for one in connections]
            losses = [each.round(number, steps=2)["train_loss"] for number in range(3)]
            schema = each.wire.schema
            sizes = [sum(item.numel * item.carried(p).itemsize for item in schema.items) for p in (payload, "params")]
            up, down = (3 * frame_bytes(len(schema.items), size) for size in sizes)
            assert len(connections) == (6 if each is flat else 3)
            assert [one.received_bytes - at for one, at in zip(connections, before, strict=True)] == [
                up for _ in connections
            ]
            assert all(one.sent_bytes == down for one in connections)
            each.losses = losses  # type: ignore[attr-defined]
        agree(played)
        assert played.losses == pytest.approx(flat.losses, rel=1e-5)  # type: ignore[attr-defined]
        for item, found, wanted, old in zip(schema.items, played.model.values, flat.model.values, initial, strict=True):
            torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-6, msg=item.name)
            assert "linear" not in item.name or not torch.allclose(wanted, old, atol=1e-3)
        (first, *_), (second, *_) = _notes(played, 1), _notes(played, 4)
        assert (first["clients"], second["clients"]) == (2, 3) and second["update_bytes"] == 3 * second["sent_bytes"]


def test_a_region_gets_the_bytes_that_rank_0_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with rounds(clients=3, served=ONE, up=SZ3, down=SZ3, schedule=Fixed(alpha=0.1)) as played:
        sent: dict[str, list[bytes]] = {"rank 0": [], "region": []}
        for name, connected in (("rank 0", played.server.connected), ("region", played.regions[0]._region.connected)):

            def send(frames: Any, _name: str = name, _send: Any = connected.send) -> None:
                sent[_name] += sorted({b"".join(pieces) for pieces in frames.values()})
                _send(frames)

            monkeypatch.setattr(connected, "send", send)
        for number in range(3):
            played.round(number)
        played.server.send_last(3)
        played.regions[0].take_last(3)
        assert sent["region"] == sent["rank 0"] and len(sent["region"]) == 4
        for client in (1, 2):
            played.clients[client].take_last(3)
        last = bits(played.model.values)
        assert all(bits(played.wire.schema.take(model)) == last for model in played.models)


def test_a_mean_is_encoded_within_the_bounds_of_its_own_update_and_what_it_loses_comes_with_the_next() -> None:
    alpha = 0.1
    schedule = Fixed(alpha=alpha, basis="update")
    with rounds(clients=3, served=ONE, up=SZ3 | {"feedback": True}, schedule=schedule) as played:
        place = [item.name for item in played.wire.schema.items].index("linear.weight")
        lost, worst = torch.zeros(1), 0.0
        for number in range(4):
            before = played.model.values[place].double()
            played.round(number)
            mean = played.regions[0]._region._mean[place]
            lost = lost + mean - (played.model.values[place] - before)
            bound = math.sqrt(3) * alpha * float(mean.square().mean().sqrt())
            worst = max(worst, bound)
            assert 0.3 * bound < float(lost.abs().max()) < 1.001 * worst, "of all rounds no more than of one"


@pytest.mark.parametrize("garbage", [False, True], ids=["dead", "garbage"])
def test_who_is_lost_in_a_region_is_lost_there_alone(garbage: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with rounds(clients=8, served=TWO, up=SZ3, schedule=Fixed(alpha=0.01)) as played:
        played.round(0)
        _notes(played, 4)
        if garbage:
            pack = played.wire.pack

            def weightless(kind: Kind, sender: int, round_: int, encoded: Any, facts: Any, **given: Any) -> Any:
                facts = dataclasses.replace(facts, samples=0) if sender == 6 and kind is Kind.UPDATE else facts
                return pack(kind, sender, round_, encoded, facts, **given)

            monkeypatch.setattr(played.wire, "pack", weightless)
        else:
            played.clients[6].close()
        present = [0, 1, 2, 3, 4, 5, 7]
        note = played.round(1, clients=[*present, 6] if garbage else present)
        assert (note["clients"], note["left"]) == (3, {})
        (there,) = _notes(played, 4)
        assert there["clients"] == 2 and list(there["left"]) == ["6"]
        assert ("0 samples" if garbage else "connection of client 6 is over") in there["left"]["6"]
        if garbage:
            with pytest.raises(Gone, match="0 samples"):
                played.clients[6].begin(2)

        for client in (5, 7):
            played.clients[client].close()
        played.server.begin(2)
        for number in (0, 1, 2, 3):
            played.clients[number].begin(2)
        with pytest.raises(Left, match="region region 4: no client is left") as caught:
            _alone(played.regions[4], 2)
        assert [line.split(":")[0] for line in sorted(caught.value.args[0].splitlines()[1:])] == [
            f"client {one}" for one in (5, 6, 7)
        ]
        played.regions[4].close()
        for number in (0, 2, 3, 1):
            if number != 1:
                played.train(played.clients[number], [2])
            played.clients[number].end(2)
        played.server.collect(2)
        (note,) = taken(played.server)
        assert note["clients"] == 2 and list(note["left"]) == ["4"]


def test_a_region_whose_client_stalls_sends_what_it_has() -> None:
    with rounds(clients=3, served=ONE, message_s=0.2) as played:
        played.server.begin(0)
        for number in (0, 1, 2):
            played.clients[number].begin(0)
        played.train(played.clients[1], [0])
        played.clients[1].end(0)
        played.regions[0].end(0)
        (note,) = _notes(played, 0)
        assert note["clients"] == 1 and "late" in note["left"]["2"]
        played.server.collect(0)
        assert taken(played.server)[0]["left"] == {}


def test_a_server_of_a_region_takes_its_clients_with_it_and_the_others_go_on() -> None:
    with rounds(clients=8, served=TWO) as played:
        played.round(0)
        played.regions[1].close()
        note = played.round(1, clients=[0, 4, 5, 6, 7])
        assert note["clients"] == 2 and list(note["left"]) == ["1"]
        for client in (2, 3):
            with pytest.raises(Gone, match="connection of the server is over"):
                played.clients[client].begin(1)


@pytest.mark.parametrize("down", [{}, SZ3, {"payload": "params", **SZ3}], ids=["delta", "delta, sz3", "params, sz3"])
def test_who_comes_back_to_a_region_gets_what_the_others_have(down: dict[str, Any]) -> None:
    with rounds(clients=8, served=TWO, up=SZ3, down=down, schedule=Fixed(alpha=0.1)) as played:
        for number in range(3):
            played.round(number)
        _notes(played, 4)
        back = played.come_back(6)
        played.server.begin(3)
        for number in (1, 4):
            played.clients[number].begin(3)
        assert back.come_back() == 3
        for client in played.clients:
            if client.number not in TWO:
                client.begin(3)
        agree(played)
        for client in played.clients:
            if client.number not in TWO:
                played.train(client, [3])
                client.end(3)
        for number in TWO:
            played.clients[number].end(3)
        played.server.collect(3)
        (note,), (there,) = taken(played.server), _notes(played, 4)
        assert note["back"] == [] and note["clients"] == 3
        assert (there["back"], there["clients"], there["left"]) == ([6], 3, {})
        played.round(4)
        agree(played)


def test_a_whole_model_is_no_introduction_and_a_region_forgets_what_it_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    up = {"codec": TopK(density=0.25), "cutoff": 100, "feedback": True}
    with rounds(clients=3, served=ONE, up=up, down=SZ3, schedule=AdaptiveBound(alpha=0.3)) as played:
        played.round(0)
        kept = played.regions[0]._up.residuals
        assert kept is not None and any(bool(one.any()) for one in kept.state_dict().values())
        back = played.come_back(2)
        monkeypatch.setattr(AdaptiveBound, "restore", True)
        played.server.begin(1)
        played.regions[0].begin(1)
        assert back.come_back() == 1
        for client in (1, 2):
            played.clients[client].begin(1)
        agree(played)
        assert played.downlink.epoch == 1
        for client in (0, 1):
            residuals = played.clients[client]._up.residuals
            assert residuals is not None and not residuals.state_dict()
        monkeypatch.setattr(AdaptiveBound, "restore", False)
        for client in (1, 2):
            played.train(played.clients[client], [1])
            played.clients[client].end(1)
        played.regions[0].end(1)
        played.server.collect(1)
        assert _notes(played, 0)[-1]["clients"] == 2


def test_with_the_last_model_nobody_is_let_in_to_a_region() -> None:
    with rounds(clients=3, served=ONE) as played:
        played.round(0)
        back = played.come_back(2)
        played.server.send_last(1)
        played.regions[0].take_last(1)
        played.clients[1].take_last(1)
        with pytest.raises(Gone):
            back.come_back()


def test_a_client_of_a_region_is_none_of_rank_0() -> None:
    with rounds(clients=3, served=ONE) as played:
        played._server_of = {}
        stranger = played._client(2, played._knock(2))
        played.server.begin(0)
        with pytest.raises(Gone, match="expected is one of 0") as caught:
            stranger.begin(0)
        assert caught.value.reason is Refusal.SENDER and played.server.connected.clients == [0]
        stranger.close()


def test_the_lowest_rank_of_a_region_serves_it_where_there_is_anybody_to_serve() -> None:
    places = ServerAssignment.by_region(topology((2, 1, 3, 2)))
    assert places.server_of == (0, 0, 0, 0, 3, 3, 0, 6) and places.region_servers == [3, 6]
    assert places.clients_of(0) == [0, 1, 2, 5] and places.clients_of(3) == [3, 4] and places.clients_of(6) == [6]
    parts = [places.part(rank) for rank in range(8)]
    assert parts == [None, (0, 5), (1, 5), None, (2, 5), (3, 5), None, (4, 5)]
    assert ServerAssignment.by_region(topology((3, 1))) == ServerAssignment.flat(4)
    assert ServerAssignment.flat(3).part(2) == (1, 2) and ServerAssignment.flat(3).region_servers == []
