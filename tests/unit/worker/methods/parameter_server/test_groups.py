"""Regions with several rounds of their own for each of rank 0's: what they come to, what links carry, who is lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from testbed.core.errors import Left
from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.regional_group import GroupServer
from testbed.worker.methods.parameter_server.transport.frames import frame_bytes
from testbed.worker.strategies.parameter_server import ParameterServer
from tests.unit.worker.recorded import taken
from tests.unit.worker.server_models import bits
from tests.unit.worker.server_rounds import SZ3, Regression, Rounds, Small, batch_of, rounds, sgd

TWO = {1: [2, 3], 4: [5, 6, 7]}
"""Of eight clients: 0 is rank 0's, as are the servers of two regions, of two and of three clients."""
K, STEPS = 3, 2
"""Rounds of a group, and steps of each."""


def _group(played: Rounds, number: int) -> GroupServer:
    return cast(GroupServer, played.regions[number])


def _region_round(played: Rounds, region: int, number: int, *, without: Collection[int] = ()) -> None:
    server = _group(played, region)
    server.begin(number)
    taking = [played.clients[one] for one in TWO[region] if one not in without]
    for client in taking:
        client.begin(number)
        played.train(client, range(number * STEPS, (number + 1) * STEPS))
        client.end(number)
    server.end(number)


def _round(played: Rounds, number: int, *, regions: Sequence[int] = tuple(TWO)) -> dict[str, Any]:
    """Of rank 0, which is the `number`-th from 0."""
    first = number * K
    played.server.begin(number)
    alone = played.clients[0]
    alone.begin(number)
    played.train(alone, range(first * STEPS, (first + K) * STEPS))
    alone.end(number)
    for region in regions:
        for place in range(K):
            _region_round(played, region, first + place)
    played.server.collect(number)
    (note,) = (note for note in taken(played.server) if note["event"] == "round")
    return note


def _end(played: Rounds, number: int, own: int) -> None:
    """
    Args:
        own: the last round of groups, as they count it.
    """
    played.server.send_last(number)
    played.clients[0].take_last(number)
    for region, members in TWO.items():
        _group(played, region).take_last(own)
        for client in members:
            played.clients[client].take_last(own)
    last = bits(played.model.values)
    assert all(bits(played.wire.schema.take(model)) == last for model in played.models)


def _by_hand(global_rounds: int) -> list[Tensor]:
    """Hierarchical averaging as its paper has it, of whole states; momenta stay with clients, as here."""
    trainers = [0, 2, 3, 5, 6, 7]
    places = {number: place for place, number in enumerate(trainers)}
    models = {number: Small() for number in trainers}
    optimizers = {number: sgd(model) for number, model in models.items()}

    def train(number: int, begun: dict[str, Tensor], steps: range) -> dict[str, Tensor]:
        model, optimizer = models[number], optimizers[number]
        model.load_state_dict(begun)
        for step in steps:
            optimizer.zero_grad()
            Regression().loss(model, batch_of(places[number], step)).backward()
            optimizer.step()
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def mean(states: list[dict[str, Tensor]], weights: list[int]) -> dict[str, Tensor]:
        total = sum(weights)
        return {
            name: sum(w / total * one[name].double() for w, one in zip(weights, states, strict=True)).to(first.dtype)  # type: ignore[union-attr]
            for name, first in states[0].items()
        }

    state = {name: tensor.clone() for name, tensor in Small().state_dict().items()}
    for number in range(global_rounds):
        first = number * K
        ends = [train(0, state, range(first * STEPS, (first + K) * STEPS))]
        for members in TWO.values():
            group = state
            for round_ in range(first, first + K):
                steps = range(round_ * STEPS, (round_ + 1) * STEPS)
                group = mean([train(one, group, steps) for one in members], [1] * len(members))
            ends.append(group)
        state = mean(ends, [1, 2, 3])
    return [state[name] for name in ("linear.weight", "linear.bias", "norm.running_mean", "norm.weight")]


@pytest.mark.parametrize("payload", ["params", "delta"])
def test_groups_average_by_themselves_and_rank_0_averages_what_they_have_come_to(payload: str) -> None:
    given: dict[str, Any] = {"up": {"payload": payload}, "down": {"payload": "params"}}
    with rounds(clients=8, served=TWO, group_rounds=K, **given) as played:
        connections = played.server.connected.connections
        before = [one.received_bytes for one in connections]
        notes = [_round(played, number) for number in range(2)]
        schema = played.wire.schema
        sizes = [sum(item.numel * item.carried(p).itemsize for item in schema.items) for p in (payload, "params")]
        up, down = (2 * frame_bytes(len(schema.items), size) for size in sizes)
        assert [one.received_bytes - at for one, at in zip(connections, before, strict=True)] == [up] * 3
        assert all(one.sent_bytes == down for one in connections), "whatever groups do in between"
        assert [note["round"] for note in notes] == [0, 1]
        found = dict(zip([item.name for item in schema.items], played.model.values, strict=True))
        names = ("linear.weight", "linear.bias", "norm.running_mean", "norm.weight")
        for name, wanted in zip(names, _by_hand(2), strict=True):
            torch.testing.assert_close(found[name], wanted, rtol=2e-5, atol=2e-6, msg=name)
        there = [note for note in taken(_group(played, 4)) if note["event"] == "region_round"]
        assert [note["round"] for note in there] == list(range(2 * K))
        assert [note["sent_bytes"] > 0 for note in there] == [False, False, True] * 2
        assert all(note["update_bytes"] == 3 * note["model_bytes"] for note in there[1:])
        _end(played, 2, 2 * K)


def test_with_bounds_a_groups_clients_have_what_its_server_believes_they_have() -> None:
    schedule = Fixed(alpha=0.1, basis="update")
    with rounds(clients=8, served=TWO, group_rounds=K, up=SZ3, down=SZ3, schedule=schedule) as played:
        for number in range(2):
            _round(played, number)
            for region, members in TWO.items():
                held = bits(_group(played, region)._group._downlink.reference)
                assert all(bits(played.clients[one].reference) == held for one in members)
                lost = zip(
                    _group(played, region)._group._model.values, played.clients[members[0]].reference, strict=True
                )
                assert not all(torch.equal(*pair) for pair in lost), "models of groups go by bounds, too"
        _end(played, 2, 2 * K)


def test_a_run_that_stops_between_two_rounds_of_rank_0_counts_what_groups_have_done() -> None:
    with rounds(clients=8, served=TWO, group_rounds=K) as played:
        _round(played, 0)
        before = bits(played.model.values)
        played.server.begin(1)
        alone = played.clients[0]
        alone.begin(1)
        played.train(alone, range(K * STEPS, (K + 1) * STEPS))
        for region in TWO:
            _region_round(played, region, K)
        alone.end(1)
        for region in TWO:
            _group(played, region)._send_update()
        played.server.collect(1)
        assert bits(played.model.values) != before
        _end(played, 2, K + 1)


def test_a_client_lost_in_a_groups_round_comes_back_to_the_next() -> None:
    with rounds(clients=8, served=TWO, group_rounds=K, down=SZ3, schedule=Fixed(alpha=0.1)) as played:
        played.server.begin(0)
        played.clients[0].begin(0)
        played.train(played.clients[0], range(K * STEPS))
        played.clients[0].end(0)
        _region_round(played, 1, 0)
        _region_round(played, 1, 1)
        _region_round(played, 1, 2)
        _region_round(played, 4, 0)
        played.clients[6].close()
        _region_round(played, 4, 1, without=[6])
        back = played.come_back(6)
        server = _group(played, 4)
        server.begin(2)
        assert back.come_back() == 2
        for number in TWO[4]:
            client = played.clients[number]
            client.begin(2)
            assert bits(client.reference) == bits(server._group._downlink.reference)
            played.train(client, [4])
            client.end(2)
        server.end(2)
        played.server.collect(0)
        first, second, third = (note for note in taken(server) if note["event"] == "region_round")
        assert [one["clients"] for one in (first, second, third)] == [3, 2, 3]
        assert list(second["left"]) == ["6"] and (third["back"], third["left"]) == ([6], {})
        assert taken(played.server)[0]["clients"] == 3


def test_a_group_without_clients_is_out_and_rank_0_goes_on() -> None:
    with rounds(clients=8, served=TWO, group_rounds=K) as played:
        _round(played, 0)
        played.server.begin(1)
        _region_round(played, 4, K)
        for number in TWO[4]:
            played.clients[number].close()
        server = _group(played, 4)
        server.begin(K + 1)
        with pytest.raises(Left, match="region region 4: no client is left"):
            server.end(K + 1)
        server.close()
        played.clients[0].begin(1)
        played.train(played.clients[0], [0])
        played.clients[0].end(1)
        for place in range(K):
            _region_round(played, 1, K + place)
        played.server.collect(1)
        (note,) = taken(played.server)
        assert note["clients"] == 2 and list(note["left"]) == ["4"]


def test_what_diverged_is_sent_anew_through_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = AdaptiveBound(alpha=0.3)
    with rounds(clients=8, served=TWO, group_rounds=K, up=SZ3, down=SZ3, schedule=schedule) as played:
        _round(played, 0)
        monkeypatch.setattr(AdaptiveBound, "restore", True)
        played.server.begin(1)
        monkeypatch.setattr(AdaptiveBound, "restore", False)
        server = _group(played, 4)
        server.begin(K)
        epochs = [server._group._downlink.epoch]
        for number in TWO[4]:
            played.clients[number].begin(K)
            epochs.append(played.clients[number]._epoch or 0)
        assert epochs == [1] * 4 and bits(played.clients[5].reference) == bits(played.model.values)


def test_what_cannot_be_grouped_is_refused() -> None:
    with pytest.raises(ValueError, match="use region_servers=true"):
        ParameterServer(group_rounds=2)
    with pytest.raises(ValueError, match="group_rounds=0"):
        ParameterServer(group_rounds=0, region_servers=True)
