"""Rounds of which the server learns sums alone: what they come to, who may be missing, and who is put out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.secure_aggregation.encryption import Sealer, UnsealError
from testbed.worker.methods.federated.secure_aggregation.prime_field import MERSENNE_31, Elements
from testbed.worker.methods.federated.secure_aggregation.secure import Secure
from testbed.worker.methods.federated.secure_aggregation.secure_sum import SecureSum
from testbed.worker.methods.federated.secure_aggregation.vector import Row
from testbed.worker.methods.federated.server_model import Gathered
from testbed.worker.methods.parameter_server.messages.schema import PARAMETER
from tests.unit.worker.secure_liars import (
    BadShares,
    Beyond,
    BeyondLater,
    Dies,
    DiesLater,
    Longer,
    NoKey,
    Padded,
    SmallOrder,
    Twice,
)
from tests.unit.worker.secure_net import Kept, SecureNet, secure_net

ONE = Secure(privacy=1, dropouts=1)
"""Of four workers one may be missing."""
CLOSE = {"rtol": 0.0, "atol": 2e-5}
"""Of four numbers rounded to 1e-6, over some rounds."""
METHODS = [
    Method(name="fedavg", server={}, learning_rate=0.1),
    Method(name="fedadam", server={"tau": 0.1}, learning_rate=0.1),
    Method(name="fednova", server={}, learning_rate=0.1, momentum=0.3),
]


def _survivors_mean(net: SecureNet, survivors: Sequence[int], before: dict[str, Tensor]) -> dict[str, Tensor]:
    """By what each worker would have sent in the clear."""
    owners = net.state.owners.tolist()
    counts = {
        worker: sum(len(part) for part, owner in zip(net.parts, owners, strict=True) if owner == worker)
        for worker in survivors
    }
    found = {}
    for at, item in enumerate(net.wire.schema.items):
        name = item.name.removeprefix("model.")
        if name in before and before[name].is_floating_point():
            each = {worker: net.workers_here[worker].secure.values[at].double() for worker in survivors}  # type: ignore[union-attr]
            total = sum(counts[worker] * each[worker] for worker in survivors) / sum(counts.values())
            found[name] = before[name].double() + total if item.kind == PARAMETER else total
    return found


def _same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name].double(), value.double(), **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("server", ["deviating", "curious"])
def test_the_sum_is_that_of_a_run_in_the_clear(method: Method, server: str) -> None:
    learnt = []
    for secure in (None, Secure(privacy=1, dropouts=1, step=1e-7, server=server)):
        with secure_net(secure, method=method) as net:
            first = net.learnt()
            notes = net.play(2)
            learnt.append(net.learnt())
    assert [note["survivors"] for note in notes] == [[0, 1, 2, 3]] * 2 and not any(note["dropped"] for note in notes)
    plain, hidden = ({name: value for name, value in one.items() if value.is_floating_point()} for one in learnt)
    _same(hidden, plain)
    assert not any(torch.equal(plain[name], first[name]) for name in plain), "it has learnt nothing"
    assert int(learnt[0]["1.num_batches_tracked"]) > 0 and int(learnt[1]["1.num_batches_tracked"]) == 0


def test_of_ten_workers_three_drop_out_and_the_mean_is_the_others() -> None:
    secure = Secure(privacy=3, dropouts=3, drop=0.3)
    with secure_net(secure, workers=10) as net:
        (note,) = net.play(1)
        (later,) = net.play(1, begin=1)
        dropped = [secure.dropped(0, round_, 10) for round_ in (0, 1)]
        assert dropped[0] != dropped[1] and all(len(one) == 3 for one in dropped)
        for told, out in zip((note, later), dropped, strict=True):
            assert told["survivors"] == [one for one in range(10) if one not in out] and told["workers"] == 10
            assert told["dropped"] == {str(one): "drops out, as drop=0.3 asks" for one in out}
        length = -(-net.vector.size // 4)
        assert note["masked_bytes"] == 7 * 4 * net.vector.size and note["answer_bytes"] == 7 * 4 * length
        assert note["share_bytes"] == 10 * 9 * (4 * length + 48)
        assert note["shares_s"] > 0 and note["recovery_s"] > 0 and not net.connected.left
    with secure_net(secure, workers=10) as net:
        before = net.learnt()
        net.play(1)
        _same(net.learnt(), _survivors_mean(net, note["survivors"], before))
        assert [one["came"] for one in net.notes if one["event"] == "federated_round"] == [7]


@pytest.mark.parametrize("kind", [Dies, DiesLater])
def test_the_round_goes_on_without_a_worker_that_dies(kind: type[Kept]) -> None:
    with secure_net(ONE, kinds={2: kind}) as net:
        before = net.learnt()
        (note,) = net.play(1)
        survivors = [0, 1, 3] if kind is Dies else [0, 1, 2, 3]
        assert note["survivors"] == survivors and note["dropped"] == {"2": "is out"}
        _same(net.learnt(), _survivors_mean(net, survivors, before))
        (note,) = net.play(1, begin=1)
        assert (note["workers"], note["survivors"]) == (3, [0, 1, 3])


@pytest.mark.parametrize("kind", [Dies, DiesLater])
def test_too_few_have_no_sum_and_the_run_says_who_is_missing(kind: type[Kept]) -> None:
    with secure_net(ONE, kinds={1: kind, 2: kind}) as net, pytest.raises(RunError, match="round 0: secure sum") as told:
        net.play(1)
    assert "worker 1: is out" in str(told.value) and "worker 2: is out" in str(told.value)


def test_a_worker_that_comes_back_is_in_the_sum_of_the_next_round() -> None:
    with secure_net(ONE, kinds={2: Dies}) as net:
        net.play(1)
        back = net.come_back(2)
        notes = net.play(2, begin=1, back=[back])
        assert [note["survivors"] for note in notes] == [[0, 1, 3], [0, 1, 2, 3]] and not net.connected.left
        assert back.error is None


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Longer, "refused (schema)"),
        (Padded, "refused (table)"),
        (Beyond, "elements of the prime field"),
        (BeyondLater, "elements of the prime field"),
        (Twice, "refused (length)"),
        (BadShares, "says shares that 3 workers cannot open"),
        (SmallOrder, "says shares that 3 workers cannot open"),
        (NoKey, "says a key of zeros; it must be a public key"),
    ],
)
def test_what_no_sum_can_be_made_of_puts_its_sender_out_and_the_round_goes_on(kind: type[Kept], told: str) -> None:
    with secure_net(ONE, kinds={3: kind}) as net:
        before = net.learnt()
        (note,) = net.play(1)
        assert list(net.connected.left) == ["3"] and told in net.connected.left["3"], net.connected.left
        assert "3" in note["dropped"]
        if 3 not in note["survivors"]:
            _same(net.learnt(), _survivors_mean(net, [0, 1, 2], before))
        assert net.workers_here[3].error is not None
        (note,) = net.play(1, begin=1)
        assert note["survivors"] == [0, 1, 2]


def test_a_worker_whose_numbers_are_too_large_drops_out_of_the_round_and_says_so() -> None:
    class Large(Kept):
        def _masked(self, round_: int, row: Row) -> Elements | str:
            return super()._masked(round_, row + (9.0 if round_ == 0 else 0.0))

    with secure_net(ONE, kinds={1: Large}) as net:
        first, second = net.play(2)
        assert first["survivors"] == [0, 2, 3] and "beyond largest=8" in first["dropped"]["1"]
        assert second["survivors"] == [0, 1, 2, 3]


def test_no_single_update_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: dict[int, Elements] = {}
    clear: dict[int, Sequence[Tensor]] = {}
    take, add = SecureSum.take_masked, Gathered.add

    def taking(self: SecureSum, client: int, row: Elements) -> None:
        masked[client] = row
        take(self, client, row)

    def adding(self: Any, client: int, weight: float, tensors: Sequence[Tensor]) -> None:
        clear[client] = tensors
        add(self, client, weight, tensors)

    monkeypatch.setattr(SecureSum, "take_masked", taking)
    monkeypatch.setattr(Gathered, "add", adding)
    with secure_net(ONE) as net:
        first = net.server._model.values
        net.play(1)
        hidden = {*net.vector.learning, *net.vector.statistics}
        for worker, tensors in clear.items():
            own = net.workers_here[worker].secure
            assert own is not None
            for at in hidden:
                is_parameter = net.wire.schema.items[at].kind == PARAMETER
                assert torch.equal(tensors[at], torch.zeros_like(first[at]) if is_parameter else first[at])
                assert not torch.equal(tensors[at], own.values[at])
    rows = np.stack([masked[worker] for worker in range(4)])
    assert rows.shape == (4, net.vector.size) and net.vector.size == 68
    signed = np.where(rows > MERSENNE_31 // 2, rows - MERSENNE_31, rows)
    assert np.mean(np.abs(signed) < 8e6) < 0.1, "an update's elements are all below 8 in steps of 1e-6"
    assert abs(np.mean(rows / MERSENNE_31) - 0.5) < 0.1 and 0.23 < np.std(rows / MERSENNE_31) < 0.35


def test_only_whom_it_is_for_opens_what_is_sealed_and_only_in_its_round() -> None:
    ours, theirs, other = Sealer(5, 0), Sealer(5, 1), Sealer(5, 2)
    sealed = ours.seal(b"a share", 1, theirs.public)
    assert theirs.unseal(sealed, 0, ours.public) == b"a share" and b"a share" not in sealed
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    for message, sender, opener in ((sealed, 0, other), (changed, 0, theirs), (sealed, 2, theirs)):
        with pytest.raises(UnsealError, match="does not open"):
            opener.unseal(message, sender, ours.public)
    theirs._round = 6
    with pytest.raises(UnsealError, match="does not open"):
        theirs.unseal(sealed, 0, ours.public)
