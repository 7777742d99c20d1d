"""Models that hang on nothing: after a divergence, for who has missed one, at the end; and what a probe objects to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.messages.wire import Facts
from testbed.worker.methods.parameter_server.server import MAX_RESTORES
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Kind
from tests.unit.worker.recorded import taken
from tests.unit.worker.server_models import bits
from tests.unit.worker.server_rounds import PARAMS, SZ3, WIDTH, Rounds, agree, batch_of, rounds


def _diverge(played: Rounds, number: int) -> int:
    """Two rounds with a loss that is far too high; the number of the next."""
    for client in played.clients:
        client._training.step = _with_loss(client._training.step, 50.0)  # type: ignore[method-assign]
    for _ in range(2):
        played.round(number)
        number += 1
    for client in played.clients:
        del client._training.step
    return number


def _with_loss(step: Any, loss: float) -> Any:
    def taken(batch: Tensor) -> float:
        step(batch)
        step.__self__._losses[-1] = loss
        return loss

    return taken


@pytest.mark.parametrize("down", [SZ3, SZ3 | PARAMS], ids=["delta", "params"])
@pytest.mark.parametrize("up", [SZ3 | {"feedback": True}, SZ3 | PARAMS, {"payload": "grad", "codec": "topk"}])
def test_after_a_divergence_all_begin_anew_from_the_last_good_model_to_the_bit(
    up: dict[str, Any], down: dict[str, Any]
) -> None:
    with rounds(up=up, down=down, schedule=AdaptiveBound(alpha=0.3)) as played:
        for number in range(3):
            note = played.round(number)
            assert not note["whole"] and note["bound"]["why"] != "divergence"
            agree(played)
        good = bits(played.model._good)
        assert played.downlink.epoch == 0
        residuals = [client._up.state_dict()["residuals"] for client in played.clients]
        number = _diverge(played, 3)
        assert played.schedule.restore and played.schedule.lossless_uplink
        assert bits(played.model.values) != good
        played.server.begin(number)
        assert bits(played.model.values) == good == bits(played.downlink.reference)
        for client, optimizer in zip(played.clients, played.optimizers[1:], strict=True):
            client.begin(number)
            assert bits(client.reference) == good and client._epoch == 1
            assert not optimizer.state and not client._up.state_dict()["residuals"]
            client._training.step(batch_of(client.number, number))
            client.end(number)
        assert not played.optimizers[0].state
        if up.get("feedback"):
            assert all(kept for kept in residuals), "else nothing is forgotten"
        values = [_values(client) for client in played.clients]
        played.server.collect(number)
        (note,) = taken(played.server)
        assert note["whole"] and note["alpha"] == 0.01 and note["bound"]["lossless"]
        if up.get("payload") == "params":  # lossless up, too
            mean = [sum(each) / 2 for each in zip(*values, strict=True)]
            for found, wanted in zip(played.model.values, mean, strict=True):
                torch.testing.assert_close(found.double(), torch.as_tensor(wanted).double(), rtol=1e-6, atol=1e-7)
        after = played.round(number + 1)
        assert not after["whole"] and played.downlink.epoch == 1
        agree(played)


def _values(client: Any) -> list[Tensor]:
    return [tensor.double() for tensor in client._wire.schema.take(client._model)]


def test_a_training_that_diverges_again_and_again_is_given_up() -> None:
    with rounds(up=SZ3, down=SZ3, schedule=AdaptiveBound()) as played:
        played.round(0)
        number = _diverge(played, 1)
        for _ in range(MAX_RESTORES):
            number = _diverge(played, number)
        with pytest.raises(RunError, match=f"diverged {MAX_RESTORES + 1} times in a row.*lower the learning rate"):
            played.server.begin(number)


def test_what_the_probe_objects_to_is_sent_tighter_and_then_exactly() -> None:
    objected: list[float] = []

    def probe() -> float:
        objected.append(1.0)
        return float(len(objected))  # each time worse

    with rounds(down=SZ3, schedule=AdaptiveBound(alpha=0.3), probe=probe) as played:
        first = played.round(0)
        assert not objected and first["bound"]["lossless"], "no update is known yet"
        note = played.round(1)
        assert len(objected) == 1 + 3
        assert note["bound"]["violations"] == 3 and note["bound"]["lossless"] and note["bound"]["why"] == "violation"
        assert not note["whole"] and note["bound"]["alpha"] == pytest.approx(0.3 / 8)
        agree(played)
        sent = played.downlink.losses
        assert sent[0] is not None and sent[1] is None


def test_one_objection_tightens_what_is_sent() -> None:
    answers = iter([1.0, 2.0, 1.0])
    with rounds(down=SZ3, schedule=AdaptiveBound(alpha=0.3), probe=lambda: next(answers)) as played:
        played.round(0)
        note = played.round(1)
        assert (note["bound"]["violations"], note["bound"]["lossless"]) == (1, False)
        assert note["alpha"] == pytest.approx(0.15) and played.downlink.losses == (1.0, 1.0)
        agree(played)


def test_a_client_of_another_epoch_is_told_to_join_again_and_a_whole_model_is_its_way_back() -> None:
    with rounds(down=SZ3, schedule=AdaptiveBound()) as played:
        played.round(0)
        played.round(1)
        late = played.clients[1]
        late._epoch = 7  # as if it had come back from another life
        late.reference = [torch.zeros_like(tensor) for tensor in late.reference]
        exact = played.downlink.whole(2)
        facts = Facts(epoch=played.downlink.epoch, alpha=0.3)
        frame = played.wire.pack(Kind.MODEL, SERVER, 2, exact, facts, whole=True)
        played.server.connected.send(dict.fromkeys((0, 1), frame))
        for client in played.clients:
            client.begin(2)
        agree(played)
        assert bits(late.reference) == bits(played.model.values) and late._epoch == 1
        late._epoch = 7
        late._training.step(batch_of(1, 2))
        played.clients[0]._training.step(batch_of(0, 2))
        for client in played.clients:
            client.end(2)
        played.server.collect(2)
        assert list(played.server.connected.left) == ["1"]
        assert "refers to reference 7, here it is 1; join again" in played.server.connected.left["1"]


def test_a_delta_of_another_epoch_is_refused_by_the_client() -> None:
    with rounds(down=SZ3, schedule=AdaptiveBound()) as played:
        played.round(0)
        played.clients[0]._epoch = 3
        played.server.begin(1)
        with pytest.raises(RunError, match="refers to reference 0, here it is 3"):
            played.clients[0].begin(1)


def test_a_model_that_is_not_finite_is_told_as_such() -> None:
    with rounds(up=PARAMS | {"codec": "sz3", "cutoff": 100}, schedule=AdaptiveBound()) as played:
        played.round(0)
        assert played.model.finite
        played.model._put([tensor / 0 if tensor.is_floating_point() else tensor for tensor in played.model.values])
        assert not played.model.finite


def test_the_last_model_is_the_servers_to_the_bit_and_is_noted() -> None:
    with rounds(up=SZ3, down=SZ3, schedule=AdaptiveBound()) as played:
        for number in range(3):
            played.round(number)
        played.server.send_last(3)
        for client in played.clients:
            client.begin(3)
            assert bits(client._wire.schema.take(client._model)) == bits(played.model.values)
        (note,) = taken(played.server)
        assert note["event"] == "last_model" and note["round"] == 3 and not note["left"] and note["model_bytes"] > 8000


def test_whole_models_of_halves_come_as_halves_where_changes_are_floats() -> None:
    with rounds(down=SZ3, dtype=torch.bfloat16) as played:
        encoded = played.downlink.whole(0)
        assert sum(entry.raw_bytes for entry in encoded.entries) == 2 * WIDTH * (WIDTH + 5) + 8
        frame = played.wire.pack(Kind.MODEL, SERVER, 0, encoded, Facts(epoch=1), whole=True)
        played.server.connected.send(dict.fromkeys((0, 1), frame))
        for client in played.clients:
            client.begin(0)
            assert bits(client.reference) == bits(played.model.values)
        played.server.begin(1)
        for client in played.clients:
            client.begin(1)
        agree(played)
