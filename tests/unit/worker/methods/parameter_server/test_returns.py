"""Clients that come back in mid-run: what they are told, and that from then on they hold the bits of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.bounds.baselines import DAdaQuant, Fixed
from testbed.worker.methods.parameter_server.bounds.break_even import MEASURING, NO_GAIN, PROBE, Gate
from testbed.worker.methods.parameter_server.messages.schema import PARAMETER
from testbed.worker.methods.parameter_server.transport.connection import Gone
from tests.unit.worker.recorded import taken
from tests.unit.worker.server_rounds import SZ3, agree, batch_of, rounds


@pytest.mark.parametrize("down", [{}, SZ3, {"payload": "params", **SZ3}], ids=["delta", "delta, sz3", "params, sz3"])
def test_who_comes_back_gets_what_the_others_have_and_goes_on_with_them(down: dict[str, Any]) -> None:
    with rounds(clients=3, up=SZ3, down=down, schedule=Fixed(alpha=0.1)) as played:
        for number in range(3):
            played.round(number)
        played.clients[1].close()
        note = played.round(3, clients=[0, 2])
        assert note["clients"] == 2 and list(note["left"]) == ["1"]

        back = played.come_back(1)
        played.server.begin(4)
        assert back.come_back() == 4
        for client in played.clients:
            client.begin(4)
        agree(played)
        for client in played.clients:
            client._training.step(batch_of(client.number, 4))
            client.end(4)
        played.server.collect(4)
        (note,) = taken(played.server)
        assert note["clients"] == 3 and not note["left"] and not note["whole"]
        assert played.round(5)["clients"] == 3
        agree(played)


def test_of_halves_it_gets_what_differences_have_made_of_them() -> None:
    with rounds(dtype=torch.float16) as played:
        schema, first = played.wire.schema, played.model.values
        for number in range(3):
            played.server.begin(number)
            for client in played.clients:
                client.begin(number)
            played.model.move(
                [
                    torch.full(item.shape, 1e-5) if item.kind == PARAMETER else value
                    for item, value in zip(schema.items, first, strict=True)
                ],
                played.downlink.reference,
            )
        back = played.come_back(1)
        played.server.begin(3)
        back.come_back()
        for client in played.clients:
            client.begin(3)
        agree(played)
        (place,) = (at for at, item in enumerate(schema.items) if item.name == "linear.weight")
        assert back.reference[place].dtype == torch.float32


def test_its_bound_is_that_of_the_others_where_bounds_go_by_weights() -> None:
    with rounds(clients=3, up=SZ3, schedule=DAdaQuant(levels=64)) as played:
        played.round(0)
        played.clients[1].close()
        played.round(1, clients=[0, 2])
        back = played.come_back(1)
        played.server.begin(2)
        back.come_back()
        for client in played.clients:
            client.begin(2)
        assert {client._alpha for client in played.clients} == {played.clients[0]._alpha}


def test_who_comes_back_while_it_was_not_missed_takes_its_own_place() -> None:
    with rounds(clients=2) as played:
        played.round(0)
        back = played.come_back(0)
        played.server.begin(1)
        assert back.come_back() == 1
        for client in played.clients:
            client.begin(1)
        agree(played)


def test_with_the_last_model_nobody_is_let_in() -> None:
    with rounds(clients=2) as played:
        played.round(0)
        back = played.come_back(0)
        played.server.send_last(1)
        played.clients[1].begin(1)
        with pytest.raises(Gone):
            back.come_back()


def test_a_server_waits_for_nobody_without_clients() -> None:
    with rounds(clients=1) as played:
        played.round(0)
        played.clients[0].close()
        with pytest.raises(RunError, match="no client is left"):
            played.round(1, clients=[])


@pytest.mark.parametrize("down", [SZ3, {"payload": "params", **SZ3}], ids=["delta", "params"])
def test_beside_a_gate_and_decoders_who_comes_back_decides_anew_and_holds_the_same_bits(down: dict[str, Any]) -> None:
    """Nothing ever pays, and every third message is compressed all the same."""
    gate, up = Gate(margin=1e-9, probe_every=3), SZ3 | {"feedback": True}
    with rounds(clients=2, up=up, down=down, schedule=Fixed(alpha=0.1), gate=gate, decoders=2) as played:
        for number in range(5):
            played.round(number)
        whys = [note["why"] for note in taken(played.clients[0]._up)]
        assert whys == [MEASURING, MEASURING, NO_GAIN, NO_GAIN, PROBE]

        back = played.come_back(1)
        played.server.begin(5)
        assert back.come_back() == 5
        for client in played.clients:
            client.begin(5)
            client._training.step(batch_of(client.number, 5))
            client.end(5)
        played.server.collect(5)
        agree(played)
        noted = {note["event"]: note for note in taken(played.server)}
        assert noted["gate"]["why"] == PROBE and noted["round"]["clients"] == 2
        for number in range(6, 9):
            assert played.round(number)["clients"] == 2
            agree(played)
        assert [note["why"] for note in taken(back._up)] == [MEASURING, MEASURING, NO_GAIN, NO_GAIN]


def test_a_codec_is_not_measured_by_who_got_something_else() -> None:
    """The only client has come back, and got what hangs on nothing instead."""
    with rounds(clients=1, down=SZ3, schedule=Fixed(alpha=0.1), gate=Gate()) as played:
        played.round(0)
        played.round(1)
        back = played.come_back(0)
        played.server.begin(2)
        assert back.come_back() == 2
        back.begin(2)
        back._training.step(batch_of(0, 2))
        back.end(2)
        played.server.collect(2)
        gate, round_ = taken(played.server)
        assert gate["why"] == MEASURING and gate["compress"] and round_["clients"] == 1
        assert played.downlink.gate is not None
        measured = played.downlink.gate.state_dict()["gate"]
        assert measured["ratio"] is None and measured["rate_bit_s"] is not None
        played.round(3)
        assert played.downlink.gate.state_dict()["gate"]["ratio"] > 1
