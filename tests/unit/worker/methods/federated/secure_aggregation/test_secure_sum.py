"""Rounds of secure aggregation with clients that drop out, and with a server that keeps to nothing."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.worker.methods.federated.secure_aggregation.fixed_point import FixedPoint
from testbed.worker.methods.federated.secure_aggregation.mask_code import (
    CURIOUS,
    DEVIATING,
    KEY_BYTES,
    SERVERS,
    MaskCode,
    TooFewError,
)
from testbed.worker.methods.federated.secure_aggregation.prime_field import Elements, Randomness
from testbed.worker.methods.federated.secure_aggregation.secure_sum import RefusedError, SecureClient, SecureSum, Share

SIZE = 9
TEN = MaskCode(clients=10, privacy=3, needed=7)  # 30 % may drop out
FIVE = MaskCode(clients=5, privacy=1, needed=4)


def _begun(code: MaskCode, size: int = SIZE, number: int = 0, seed: bytes = b"round") -> list[SecureClient]:
    """All of whom have their shares."""
    clients = [SecureClient(code, index, size, Randomness(seed + bytes([index]))) for index in range(code.clients)]
    _share(clients, number)
    return clients


def _share(clients: list[SecureClient], number: int) -> None:
    given = [client.begin(number) for client in clients]
    for sender, shares in enumerate(given):
        for client, share in shares.items():
            clients[client].take_share(sender, share)


def _vouched(clients: list[SecureClient], survivors: Collection[int]) -> dict[int, dict[int, bytes]]:
    """What the survivors vouch for, by the client that it is for."""
    given = {client: clients[client].vouch(survivors) for client in survivors}
    return {to: {by: vouchers[to] for by, vouchers in given.items() if to in vouchers} for to in survivors}


def _closed(
    server: SecureSum, clients: list[SecureClient], updates: list[Elements], alive: Collection[int]
) -> list[int]:
    for client in alive:
        server.take_masked(client, clients[client].mask(updates[client]))
    return list(server.close())


def _updates(code: MaskCode, size: int = SIZE) -> list[Elements]:
    return [Randomness(b"update" + bytes([client])).elements(size, code.prime) for client in range(code.clients)]


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(10)), st.integers(0, 3), st.integers(0, 3), st.integers(1, 13), st.sampled_from(SERVERS))
def test_the_sum_is_the_plain_sum_whoever_drops_out(
    order: list[int], before: int, lost: int, size: int, server_kind: str
) -> None:
    """`before` clients drop out before their masked updates arrive, up to `lost` in all before they answer."""
    code = MaskCode(clients=10, privacy=3, needed=7, server=server_kind)
    fixed = FixedPoint(clients=10, largest=8.0, step=2.0**-10)
    values = np.random.default_rng(size).normal(size=(10, size)).clip(-8, 8)
    clients, server = _begun(code, size), SecureSum(code, size)
    survivors = _closed(server, clients, [fixed.encode(row) for row in values], order[before:])
    vouched = _vouched(clients, survivors) if server_kind == DEVIATING else {}
    for client in order[max(before, lost) :]:
        server.take_answer(client, clients[client].answer(survivors, vouched.get(client)))
    summed, plain = fixed.decode(server.total()), values[survivors].sum(axis=0)
    assert sorted(order[before:]) == survivors
    assert np.abs(summed - plain).max() <= len(survivors) * fixed.step / 2
    assert summed.tolist() == (np.rint(values[survivors] / fixed.step).sum(axis=0) * fixed.step).tolist()


def test_too_few_survivors_or_answers_are_refused_by_name() -> None:
    clients, server = _begun(FIVE), SecureSum(FIVE, SIZE)
    with pytest.raises(TooFewError, match=r"masked updates of clients \[0, 2, 3\] alone: 4 are needed; begin a new"):
        _closed(server, clients, _updates(FIVE), [0, 2, 3])
    survivors = _closed(server, clients, _updates(FIVE), [4])
    vouched = _vouched(clients, survivors)
    for client in (0, 2, 4):
        server.take_answer(client, clients[client].answer(survivors, vouched[client]))
    with pytest.raises(TooFewError, match=r"answers of clients \[0, 2, 4\] alone: 4 are needed"):
        server.total()


def test_a_client_answers_once_a_round_and_for_one_set_of_survivors() -> None:
    code = MaskCode(clients=5, privacy=1, needed=3, server=CURIOUS)
    clients = _begun(code)
    clients[0].answer([0, 1, 2])
    for again in ([0, 1, 2], [0, 1, 2, 3]):
        with pytest.raises(RefusedError, match="client 0 has answered in round 0, and answers once a round"):
            clients[0].answer(again)
    _share(clients, 1)
    clients[0].answer([0, 1, 2, 3])


def test_a_client_answers_for_no_fewer_than_it_takes() -> None:
    client = _begun(TEN)[0]
    for survivors in ([3], range(6), [0, 1, 2, 3, 4, 5, 5]):
        for ask in (client.vouch, client.answer):
            with pytest.raises(RefusedError, match="client 0 answers for 7 or more"):
                ask(survivors)


def test_a_server_that_asks_for_two_sets_of_survivors_gets_one_sum() -> None:
    clients = _begun(FIVE)
    everyone, without = list(range(5)), [0, 1, 3, 4]
    vouched = _vouched(clients, everyone)
    with pytest.raises(RefusedError, match="client 0 has vouched for other survivors in round 0"):
        clients[0].vouch(without)
    with pytest.raises(RefusedError, match=r"client 0 has not vouched for survivors \[0, 1, 3, 4\]"):
        clients[0].answer(without, vouched[0])
    clients[0].answer(everyone, vouched[0])


def test_a_server_that_tells_some_clients_other_survivors_gets_no_answer_from_the_fewer() -> None:
    clients = _begun(FIVE)
    everyone, without = list(range(5)), [0, 1, 3, 4]
    told = {0: everyone, 1: everyone, 2: everyone, 3: everyone, 4: without}
    given = {client: clients[client].vouch(survivors) for client, survivors in told.items()}
    vouchers = {to: {by: given[by][to] for by in told if to in given[by]} for to in told}
    with pytest.raises(RefusedError, match=r"clients \[4\] alone vouch for these survivors: 4 must"):
        clients[4].answer(without, vouchers[4])
    clients[3].answer(everyone, {by: vouchers[3][by] for by in (0, 1, 2)})


def test_vouchers_are_for_one_client_and_one_round() -> None:
    clients, everyone = _begun(FIVE), list(range(5))
    first = _vouched(clients, everyone)
    with pytest.raises(RefusedError, match=r"clients \[0\] alone"):
        clients[0].answer(everyone, {by: first[1].get(by, b"") for by in range(1, 5)})
    _share(clients, 1)
    _vouched(clients, everyone)
    with pytest.raises(RefusedError, match=r"clients \[0\] alone"):
        clients[0].answer(everyone, first[0])


def test_a_client_masks_one_update_with_a_mask() -> None:
    client, updates = _begun(FIVE)[0], _updates(FIVE)
    masked = client.mask(updates[0])
    assert (masked != updates[0]).any()
    with pytest.raises(RefusedError, match="client 0 has masked an update in round 0"):
        client.mask(updates[1])
    with pytest.raises(RefusedError, match="round 0: client 0 has begun round 0; take a later one"):
        client.begin(0)
    client.begin(1)
    assert (client.mask(updates[0]) != masked).any()


def test_a_client_without_a_share_names_whose() -> None:
    clients = [SecureClient(FIVE, index, SIZE) for index in range(5)]
    given = [client.begin(0) for client in clients]
    for sender in (1, 2):
        clients[0].take_share(sender, given[sender][0])
    with pytest.raises(RefusedError, match=r"client 0 has no share of clients \[3, 4\]; leave them out"):
        clients[0].vouch(range(5))


def test_shares_that_are_none_are_refused() -> None:
    clients = [SecureClient(FIVE, index, SIZE) for index in range(2)]
    share = clients[1].begin(0)[0]
    clients[0].begin(0)
    for sender, wrong, why in (
        (1, Share(share.elements[:-1], share.key), r"the share of client 1: int64 of shape \(2,\), expected"),
        (1, Share(share.elements + FIVE.prime, share.key), "the share of client 1: elements from"),
        (1, Share(share.elements, b"short"), "client 1 gave a key of 5 bytes, not 32"),
        (5, share, "needs no share of client 5"),
        (0, share, "needs no share of client 0, or has it already"),
    ):
        with pytest.raises(RefusedError, match=why):
            clients[0].take_share(sender, wrong)
    clients[0].take_share(1, share)
    with pytest.raises(RefusedError, match="or has it already"):
        clients[0].take_share(1, share)


def test_the_server_refuses_what_no_client_sends() -> None:
    clients, server = _begun(FIVE), SecureSum(FIVE, SIZE)
    with pytest.raises(ValueError, match="client 0 answers before it can know for whom"):
        server.take_answer(0, np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="client 0: int64 of shape"):
        server.take_masked(0, np.zeros(SIZE + 1, np.int64))
    survivors = _closed(server, clients, _updates(FIVE), range(4))
    with pytest.raises(ValueError, match=r"client 4 comes late: this sum is of clients \[0, 1, 2, 3\]"):
        server.take_masked(4, clients[4].mask(_updates(FIVE)[4]))
    answer = clients[0].answer(survivors, _vouched(clients, survivors)[0])
    with pytest.raises(ValueError, match=r"client 0: elements from .* must be in"):
        server.take_answer(0, answer - FIVE.prime)
    server.take_answer(0, answer)
    with pytest.raises(ValueError, match="client 0 is none of 5, or was heard already"):
        server.take_answer(0, answer)


def test_messages_take_the_bytes_of_their_formulas() -> None:
    clients, survivors = _begun(TEN), list(range(8))
    share = clients[0].begin(1)[1]
    assert len(TEN.field.to_bytes(share.elements)) + len(share.key) == TEN.share_bytes(SIZE)
    vouchers = clients[1].vouch(survivors)
    assert sum(map(len, vouchers.values())) == KEY_BYTES * (len(survivors) - 1)


def _views(code: MaskCode, updates: list[list[int]]) -> Elements:
    """All that the server and client 2 of three see, sorted, with every choice of the masks and random rows of 0 and 1.

    Client 2 adds what it knows itself, which changes nothing.
    """
    prime = code.prime
    rows = np.array(list(itertools.product(range(prime), repeat=6))).reshape(-1, 2, 3)
    shares = rows @ code.matrix.T % prime
    masked = (rows[:, :, :2] + np.array(updates)) % prime
    answers = shares.sum(axis=1) % prime
    seen = np.concatenate([masked.reshape(-1, 4), shares[:, :, 2], answers], axis=1)
    return np.sort(seen @ prime ** np.arange(seen.shape[1]))


def test_what_the_server_and_t_clients_see_depends_on_the_sum_of_the_others_alone() -> None:
    code = MaskCode(clients=3, privacy=1, needed=3, prime=7)
    view = _views(code, [[1, 2], [3, 4]])
    for same in ([[0, 0], [4, 6]], [[6, 5], [5, 1]]):
        assert np.array_equal(view, _views(code, same))
    assert not np.intersect1d(view, _views(code, [[1, 2], [3, 5]])).size


def test_a_masked_update_is_any_update_as_likely() -> None:
    code = MaskCode(clients=3, privacy=1, needed=3, prime=7)
    counts = np.zeros(7, int)
    for seed in range(700):
        client = SecureClient(code, 0, 10, Randomness(seed.to_bytes(2, "little")))
        client.begin(0)
        counts += np.bincount(client.mask(np.full(10, 5)), minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 30  # chi squared, 6 degrees of freedom
