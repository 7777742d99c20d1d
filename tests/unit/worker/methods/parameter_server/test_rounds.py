"""Whole rounds of a server and its clients: what both ends agree on, and what a round outlives."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from compressors.topk import TopK
from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.bounds.baselines import DAdaQuant, Fixed
from testbed.worker.methods.parameter_server.bounds.break_even import Gate
from testbed.worker.methods.parameter_server.messages.entries import Encoded
from testbed.worker.methods.parameter_server.messages.wire import Facts
from testbed.worker.methods.parameter_server.transport.connection import Gone
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal
from testbed.worker.methods.parameter_server.transport.frames import Kind
from tests.unit.worker.recorded import taken
from tests.unit.worker.server_rounds import PARAMS, SZ3, Faint, Regression, Rounds, Small, agree, batch_of, rounds, sgd


def test_what_a_broadcast_loses_comes_with_the_next() -> None:
    """Top-k down, without feedback: what was left out is still in what the server has."""
    with rounds(down={"codec": TopK(density=0.25), "cutoff": 100}) as played:
        for number in range(3):
            played.round(number)
            agree(played)
        place = [item.name for item in played.wire.schema.items].index("linear.weight")
        moved = played.model.values[place].clone()
        for number in range(3, 12):
            _learn_nothing(played, number)
        left = (played.downlink.reference[place] - moved).norm() / moved.norm()
        assert float(left) < 1e-3


def test_what_a_broadcast_of_parameters_loses_is_no_progress_of_clients() -> None:
    """They send parameters as they have them; what those lack of the server's model is not taken for a step."""
    with rounds(up=PARAMS, down={**PARAMS, **SZ3}, schedule=Fixed(alpha=0.05)) as played:
        for number in range(2):
            played.round(number)
        place = [item.name for item in played.wire.schema.items].index("linear.weight")
        before = played.model.values[place].clone()
        for number in range(2, 8):
            _learn_nothing(played, number)
        lost = (played.downlink.reference[place] - before).norm() / before.norm()
        moved = (played.model.values[place] - before).norm() / before.norm()
        assert float(moved) < 1e-6 < 1e-2 < float(lost)


def _learn_nothing(played: Rounds, number: int) -> None:
    """A round after which all clients have what they were sent."""
    played.server.begin(number)
    for client in played.clients:
        client.begin(number)
        client._training.step(batch_of(client.number, number))
        client._wire.schema.put(client._model, client.reference)
        client.end(number)
    played.server.collect(number)


@pytest.mark.parametrize("change", ["bits", "samples", "table"])
def test_an_update_that_cannot_be_used_is_refused_by_name_and_the_round_goes_on(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rounds(clients=3, up=SZ3, schedule=Fixed(alpha=0.01)) as played:
        played.round(0)
        bad = played.clients[1]
        pack = played.wire.pack

        def damaged(
            kind: Kind, sender: int, round_: int, encoded: Encoded, facts: Facts, *, whole: bool = False
        ) -> Any:
            if sender == bad.number and kind is Kind.UPDATE:
                facts = dataclasses.replace(facts, samples=0) if change == "samples" else facts
                entries = list(encoded.entries)
                place = max(range(len(entries)), key=lambda one: entries[one].raw_bytes)
                if change == "bits":  # signed by the key all the same
                    payload = entries[place].payload.clone()
                    payload[:8] = torch.tensor([0, 0, 192, 127] * 2, dtype=torch.uint8)
                    entries[place] = dataclasses.replace(entries[place], payload=payload)
                if change == "table":
                    entries[place] = dataclasses.replace(entries[place], codec="raw", bound=0.0)
                encoded = dataclasses.replace(encoded, entries=entries)
            return pack(kind, sender, round_, encoded, facts, whole=whole)

        monkeypatch.setattr(played.wire, "pack", damaged)
        note = played.round(1)
        assert note["clients"] == 2 and list(note["left"]) == ["1"]
        told = {"bits": "linear.weight: a range", "samples": "0 samples", "table": "linear.weight: "}[change]
        assert told in note["left"]["1"]
        with pytest.raises(Gone) as caught:
            bad.begin(2)
        assert caught.value.reason is (Refusal.NUMBER if change == "samples" else Refusal.TENSOR)
        assert told in str(caught.value)
        after = played.round(2, clients=[0, 2])
        assert after["clients"] == 2 and after["left"] == note["left"]


def test_who_says_nothing_by_the_deadline_is_out() -> None:
    with rounds(clients=2, message_s=0.2) as played:
        played.server.begin(0)
        played.clients[0].begin(0)
        played.clients[0]._training.step(batch_of(0, 0))
        played.clients[0].end(0)
        played.server.collect(0)
        (note,) = taken(played.server)
        assert note["clients"] == 1 and "late" in note["left"]["1"]
        played.server.begin(1)
        with pytest.raises(RunError, match=r"(?s)no client is left\n.*client 0: .*late"):
            played.server.collect(1)


@pytest.mark.parametrize("payload", ["params", "delta", "grad"])
def test_running_statistics_are_averaged_and_counters_are_a_clients_own(payload: str) -> None:
    with rounds(clients=2, up={"payload": payload}, down={"payload": "params"}) as played:
        played.round(0, steps=2)
        names = [item.name for item in played.wire.schema.items]
        after = dict(zip(names, played.model.values, strict=True))
        means = [model.norm.running_mean for model in played.models[1:]]
        torch.testing.assert_close(after["norm.running_mean"], (means[0] + means[1]) / 2)
        assert not torch.equal(means[0], means[1])
        assert after["norm.num_batches_tracked"].tolist() == 2
        assert bool((after["norm.running_var"] > 0).all())
        assert torch.equal(played.models[0].norm.running_var, after["norm.running_var"])


@pytest.mark.parametrize("steps", [1, 3])
def test_a_mean_gradient_is_what_the_servers_optimizer_steps_by(steps: int) -> None:
    """Of all batches of a round, at the parameters that were sent; clients' own parameters never move."""
    model = Small()
    optimizer = sgd(model)
    with rounds(clients=2, up={"payload": "grad"}, down=PARAMS) as played:
        for number in range(3):
            played.round(number, steps=steps)
            optimizer.zero_grad()
            for client in range(2):
                for step in range(steps):
                    loss = Regression().loss(model, batch_of(client, number * steps + step))
                    (loss / (2 * steps)).backward()
            optimizer.step()
            for (name, found), wanted in zip(played.models[0].named_parameters(), model.parameters(), strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6, msg=name)
        assert not any(one.state for one in played.optimizers[1:])
        assert all(state["momentum_buffer"] is not None for state in played.optimizers[0].state.values())


def test_bounds_of_a_model_follow_from_the_step_that_the_server_took() -> None:
    with rounds(up={"payload": "grad"}, down=SZ3, schedule=Fixed(alpha=0.1, basis="update")) as played:
        before = played.model.values
        played.round(0)
        place = [item.name for item in played.wire.schema.items].index("linear.weight")
        change = float((played.model.values[place] - before[place]).square().mean().sqrt())
        assert played.model.step_rms is not None
        assert played.model.step_rms[place] == pytest.approx(change, rel=1e-5)
        played.server.begin(1)
        lost = float((played.downlink.reference[place] - played.model.values[place]).abs().max())
        assert 0.5 * math.sqrt(3) * 0.1 * change < lost <= 1.001 * math.sqrt(3) * 0.1 * change


def test_who_weighs_more_in_the_mean_is_asked_for_more_levels() -> None:
    with rounds(clients=2, up=SZ3, schedule=DAdaQuant(levels=8)) as played:
        played.clients[1]._training._context.spec.batch_size = 64
        played.round(0)
        played.server.begin(1)
        for client in played.clients:
            client.begin(1)
        ours, theirs = (client._alpha for client in played.clients)
        assert ours > theirs > 0


def _uplink_bounds(played: Rounds, monkeypatch: pytest.MonkeyPatch, number: int, steps: int) -> dict[str, float]:
    """Of what client 0 sends in a round."""
    found: dict[str, float] = {}
    pack, names = played.wire.pack, [item.name for item in played.wire.schema.items]

    def packed(kind: Kind, sender: int, round_: int, encoded: Encoded, facts: Facts, **given: Any) -> Any:
        if kind is Kind.UPDATE and sender == 0:
            found.update({names[entry.index]: entry.bound for entry in encoded.entries})
        return pack(kind, sender, round_, encoded, facts, **given)

    with monkeypatch.context() as patch:
        patch.setattr(played.wire, "pack", packed)
        played.round(number, steps=steps)
    return found


@pytest.mark.parametrize("payload", ["params", "delta", "grad"])
def test_what_has_larger_gradients_is_asked_for_tighter(payload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both = []
    for importance in (False, True):
        up = SZ3 | {"payload": payload, "importance": importance}
        with rounds(up=up, schedule=Fixed(alpha=0.02, basis="update"), model=Faint) as played:
            both.append(_uplink_bounds(played, monkeypatch, 0, steps=2))
    factors = {name: both[1][name] / bound for name, bound in both[0].items() if bound}
    root = math.sqrt((1 + 2 / 16) / 3)
    assert factors == pytest.approx({"linear.weight": root, "faint.weight": 4 * root}, rel=1e-5)


def test_by_importance_no_bound_is_looser_than_a_tenth_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Fixed(alpha=16.0, basis="update")
    with rounds(clients=1, up=SZ3 | {"importance": True}, schedule=schedule, model=Faint) as played:
        bounds = _uplink_bounds(played, monkeypatch, 0, steps=1)
        weight = dict(played.models[1].named_parameters())["faint.weight"].detach()
        assert bounds["faint.weight"] == pytest.approx(0.1 * float(weight.max() - weight.min()))


def test_squares_of_gradients_are_means_of_the_rounds_batches() -> None:
    up = SZ3 | {"importance": True}
    with rounds(clients=1, up=up) as played:
        training, model = played.clients[0]._training, Small()
        optimizer, names = sgd(model), [item.name for item in played.wire.schema.items]
        for steps in ((0, 1), (2, 3, 4)):
            training.begin()
            wanted: dict[str, list[float]] = {}
            for step in steps:
                training.step(batch_of(0, step))
                optimizer.zero_grad()
                Regression().loss(model, batch_of(0, step)).backward()
                for name, parameter in model.named_parameters():
                    assert parameter.grad is not None
                    wanted.setdefault(name, []).append(float(parameter.grad.double().square().mean()))
                optimizer.step()
            squares = training.gradient_squares
            assert squares is not None
            means = {name: sum(each) / len(each) for name, each in wanted.items()}
            found = dict(zip(names, squares, strict=True))
            assert {name: found.pop(name) for name in means} == pytest.approx(means, rel=1e-4)
            assert not any(found.values()), "buffers have no gradients"


def test_nobody_squares_gradients_that_are_not_asked_for() -> None:
    for up in (SZ3, SZ3 | {"importance": True, "payload": "grad"}):
        with rounds(clients=1, up=up) as played:
            played.clients[0]._training.begin()
            played.clients[0]._training.step(batch_of(0, 0))
            assert played.clients[0]._training.gradient_squares is None


def test_clients_with_a_higher_loss_are_asked_for_tighter_from_the_second_round_on() -> None:
    schedules = [AdaptiveBound(alpha=0.5, alpha_max=4.0, fairness=1.0) for _ in range(2)]
    with rounds(up=SZ3, schedule=schedules[0]) as played, rounds(up=SZ3, schedule=schedules[1]) as other:
        for client, loss in zip(played.clients, (1.0, 2.0), strict=True):
            client._training.step = _with_losses(client._training.step, [loss] * 9)  # type: ignore[method-assign]
        played.clients[1]._training._context.spec.batch_size = 24
        played.round(0)
        assert [client._alpha for client in played.clients] == [0.5, 0.5]
        state = played.server.state_dict()
        played.round(1)
        # a mean of 1.75
        wanted = [0.5 * math.exp(0.75), 0.5 * math.exp(-0.25)]
        assert [client._alpha for client in played.clients] == pytest.approx(wanted)

        other.server.load_state_dict(state)
        other.server.begin(1)
        for client in other.clients:
            client.begin(1)
        assert [client._alpha for client in other.clients] == pytest.approx(wanted)

        played.clients[1].close()
        played.round(2, clients=[0])
        back = played.come_back(1)
        played.server.begin(3)
        assert back.come_back() == 3
        for client in played.clients:
            client.begin(3)
        assert [client._alpha for client in played.clients] == [played.schedule.alpha] * 2, "of its last life none"


def test_the_schedule_is_told_of_rounds_in_which_a_gate_let_nothing_be_compressed() -> None:
    """A client's gate compresses in rounds 0 to 2, the server's from 1 to 3, until each has measured; then never."""
    gate, schedule = (
        Gate(margin=1e-9, probe_every=100),
        AdaptiveBound(alpha=0.1, patience=1, plateau=0.0, increase=1.25),
    )
    with rounds(clients=1, up=SZ3, down=SZ3, schedule=schedule, gate=gate, probe=lambda: 1.0) as played:
        for client in played.clients:
            losses = [1 / (1 + round_) for round_ in range(6)]
            client._training.step = _with_losses(client._training.step, losses)  # type: ignore[method-assign]
        alphas = [played.round(number)["bound"]["alpha"] for number in range(6)]
        compressed = [note["compress"] for note in taken(played.clients[0]._up)]
        assert compressed == [True, True, False, False, False, False]
    assert alphas[:3] == pytest.approx([0.1 * 1.25**rounds_ for rounds_ in (1, 2, 3)])
    assert alphas[3:] == [alphas[2]] * 3


def _with_losses(step: Any, losses: list[float]) -> Any:
    left = iter(losses)

    def taken(batch: torch.Tensor) -> float:
        step(batch)
        step.__self__._losses[-1] = next(left)
        return float(step.__self__._losses[-1])

    return taken
