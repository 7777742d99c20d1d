"""The algebra of shared masks: any U shares give the mask, any T give nothing, and two sums give a difference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from testbed.worker.methods.federated.secure_aggregation.mask_code import CURIOUS, MaskCode, TooFewError
from testbed.worker.methods.federated.secure_aggregation.prime_field import Elements, PrimeField, Randomness


def _invertible(matrix: Elements, prime: int) -> bool:
    """By elimination with Python's own integers."""
    rows = [[int(value) for value in row] for row in matrix]
    for column in range(len(rows)):
        pivot = next((row for row in rows[column:] if row[column] % prime), None)
        if pivot is None:
            return False
        rows.remove(pivot)
        rows.insert(column, pivot)
        for row in rows[column + 1 :]:
            factor = row[column] * pow(pivot[column], -1, prime)
            row[:] = [(a - factor * b) % prime for a, b in zip(row, pivot, strict=True)]
    return True


def _code(clients: int, privacy: int, needed: int, prime: int = 2**31 - 1) -> MaskCode:
    return MaskCode(clients=clients, privacy=privacy, needed=needed, prime=prime, server=CURIOUS)


CODES = [(3, 1, 2), (6, 2, 4), (7, 3, 5), (5, 4, 5), (8, 1, 8)]


@pytest.mark.parametrize(("clients", "privacy", "needed"), CODES)
def test_any_u_shares_give_the_mask(clients: int, privacy: int, needed: int) -> None:
    code, source = _code(clients, privacy, needed), Randomness(b"shares")
    for size in (1, 2, 11, 12):
        mask = source.elements(size, code.prime)
        shares = code.encode(mask, source)
        assert shares.shape == (clients, code.share_elements(size))
        for chosen in itertools.combinations(range(clients), needed):
            assert code.recover({client: shares[client] for client in chosen}, size).tolist() == mask.tolist()


@pytest.mark.parametrize("prime", [17, 2**31 - 1])
@pytest.mark.parametrize(("clients", "privacy", "needed"), CODES)
def test_the_random_rows_make_any_t_shares_whatever_the_mask(
    clients: int, privacy: int, needed: int, prime: int
) -> None:
    matrix = _code(clients, privacy, needed, prime).matrix
    assert all(_invertible(matrix[list(chosen)], prime) for chosen in itertools.combinations(range(clients), needed))
    random_rows = matrix[:, needed - privacy :]
    for chosen in itertools.combinations(range(clients), privacy):
        assert _invertible(random_rows[list(chosen)], prime)


class _Given(Randomness):
    """Random rows that a test gives."""

    def __init__(self, rows: tuple[int, ...]) -> None:
        self._rows = rows

    def elements(self, count: int, prime: int) -> Elements:
        assert count == len(self._rows)
        return np.array(self._rows, np.int64)


def test_t_shares_are_as_likely_with_one_mask_as_with_another() -> None:
    code = _code(4, 2, 4, prime=11)  # 2 pieces of an element each, and 2 random ones
    seen = []
    for mask in ([0, 0], [3, 10]):
        rows = itertools.product(range(11), repeat=2)
        seen.append(np.stack([code.encode(np.array(mask), _Given(row)) for row in rows]))
    for chosen in itertools.combinations(range(4), 2):
        views = [sorted(map(tuple, shares[:, list(chosen), 0].tolist())) for shares in seen]
        # every pair of shares exactly once: nothing is likelier with either mask
        assert views[0] == views[1] == list(itertools.product(range(11), repeat=2))
    for chosen in itertools.combinations(range(4), 3):  # one more tells the masks apart, so the test can fail
        views = [sorted(map(tuple, shares[:, list(chosen), 0].tolist())) for shares in seen]
        assert views[0] != views[1]


def test_sums_of_two_sets_of_survivors_tell_a_single_mask() -> None:
    """What clients prevent by answering once a round."""
    code, source = _code(5, 1, 3), Randomness(b"difference")
    masks = [source.elements(8, code.prime) for _ in range(5)]
    shares = np.stack([code.encode(mask, source) for mask in masks])

    def asked(survivors: list[int], answering: list[int]) -> Elements:
        answers = {client: code.field.sum(list(shares[survivors, client])) for client in answering}
        return code.recover(answers, 8)

    with_it, without = asked([0, 1, 2, 3], [0, 1, 2]), asked([0, 1, 3], [2, 3, 4])
    assert code.field.sum([with_it, -without]).tolist() == masks[2].tolist()


def test_fewer_than_u_answers_for_a_second_set_tell_part_of_a_single_mask() -> None:
    """Why clients vouch before they answer: T + 1 answers give a combination of pieces."""
    code, source = _code(5, 1, 4), Randomness(b"part")
    mask = source.elements(6, code.prime)
    shares = code.encode(mask, source)
    field, matrix = PrimeField(), code.matrix
    # of shares 0 and 1, so much of each that the random row cancels
    weights = np.array([[matrix[1, 3], -matrix[0, 3]]]) % code.prime
    told = field.matmul(weights, shares[:2])
    combination = field.matmul(weights, matrix[:2])[:, :3]
    assert combination.any()
    assert told.tolist() == field.matmul(combination, mask.reshape(3, 2)).tolist()


def test_too_few_answers_are_refused_by_name_and_wrong_ones_beyond_u() -> None:
    code = _code(5, 1, 3)
    shares = code.encode(np.arange(6), Randomness(b"few"))
    with pytest.raises(TooFewError, match=r"answers of clients \[1, 4\] alone: 3 are needed; begin a new round"):
        code.recover({1: shares[1], 4: shares[4]}, 6)
    given = {client: shares[client] for client in (0, 2, 3, 4)}
    assert code.recover(given, 6).tolist() == list(range(6))
    given[2] = (given[2] + 1) % code.prime
    with pytest.raises(ValueError, match=r"the answers of clients \[0, 2, 3, 4\] are not of one mask"):
        code.recover(given, 6)


def test_each_message_takes_what_its_formula_says() -> None:
    code = MaskCode(clients=10, privacy=3, needed=7)  # 4 pieces
    assert (code.dropouts, code.pieces) == (3, 4)
    assert code.share_elements(1001) == 251
    assert (code.share_bytes(1001), code.survivors_bytes()) == (1036, 2)
    assert _code(10, 3, 7).share_bytes(1001) == 1004


def test_what_is_no_code_is_refused_all_at_once() -> None:
    with pytest.raises(ValueError, match=r"clients=1.*\nprivacy=0.*\nneeded=0.*\nserver=kind.*\nprime=4"):
        MaskCode(clients=1, privacy=0, needed=0, server="kind", prime=4)
    with pytest.raises(ValueError, match=r"needed=7: of 6 clients"):
        _code(6, 2, 7)
    with pytest.raises(
        ValueError, match=r"needed=3: 3 clients learn nothing by privacy=3, so take more.*\nprime=7: 6 \+ 3"
    ):
        _code(6, 3, 3, prime=7)
    _code(6, 3, 4, prime=11)


def test_a_server_that_deviates_cannot_find_two_quorums() -> None:
    MaskCode(clients=10, privacy=3, needed=7)  # two groups of 7 have 4 in common
    with pytest.raises(ValueError, match=r"needed=7: a server that deviates .* take 8 or more, or server=curious"):
        MaskCode(clients=10, privacy=4, needed=7)
    MaskCode(clients=10, privacy=4, needed=8)
