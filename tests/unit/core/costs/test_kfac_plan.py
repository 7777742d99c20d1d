"""Where factors are inverted and how they travel, on factors whose answer can be told by hand."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence

import pytest

from testbed.core.costs.fusion import Cost
from testbed.core.costs.kfac_plan import (
    EVERYWHERE,
    balanced,
    blocks,
    broadcast_bytes,
    by_load,
    groups,
    groups_by_size,
    in_order,
    round_robin,
)
from testbed.core.device.factored_layer import Factor, FactoredLayer
from tests.counting import counted

PAIR = in_order([FactoredLayer("first", 3, 4), FactoredLayer("last", 5, 2)])
"""Of 6, 15, 3 and 10 elements in order of readiness."""


def of(*dimensions: int, after_s: float = 0.0) -> list[Factor]:
    return [Factor(str(i), "a", dimension, after_s) for i, dimension in enumerate(dimensions)]


def loads(weights: Sequence[float], owners: Sequence[int | None], workers: int) -> list[float]:
    return [sum(w for w, owner in zip(weights, owners, strict=True) if owner == rank) for rank in range(workers)]


def lightest(weights: Sequence[float], workers: int) -> float:
    """The least that the heaviest of `workers` runs can weigh; every way of cutting is tried."""
    count = len(weights)
    return min(
        max(sum(weights[a:b]) for a, b in itertools.pairwise([0, *cuts, count]))
        for cuts in itertools.combinations_with_replacement(range(count + 1), workers - 1)
    )


def test_factors_are_ready_in_the_order_of_forward_and_then_of_backward() -> None:
    assert [factor.name for factor in PAIR] == ["first.a", "last.a", "last.g", "first.g"]
    assert [factor.dimension for factor in PAIR] == [3, 5, 2, 4]
    assert [factor.elements for factor in PAIR] == [6, 15, 3, 10]


def test_owners_take_turns() -> None:
    assert round_robin(5, 3) == [0, 1, 2, 0, 1]
    assert round_robin(2, 4) == [0, 1]


def test_the_heaviest_goes_first_to_the_least_loaded() -> None:
    # 7 to 0, 6 to 1, 5 to 2, 4 to 2 (5 is least), 3 to 1 (6), 2 to 0 (7)
    assert by_load([2, 3, 4, 5, 6, 7], 3) == [0, 1, 2, 2, 1, 0]
    assert by_load([1, 1, 1], 2) == [0, 1, 0]  # of equals the first, to the lowest rank
    assert by_load([], 2) == []


def test_a_factor_is_inverted_everywhere_only_if_that_costs_less_than_a_broadcast() -> None:
    factors = of(30, 10, 20, 40)
    everywhere = balanced(factors, 2, lambda factor: 1.0, lambda factor: 1.1)
    assert everywhere == [EVERYWHERE] * 4
    # equal costs: communicated. 40 to 0, 30 to 1, 20 to 1, 10 to 0
    assert balanced(factors, 2, lambda factor: 1.0, lambda factor: 1.0) == [1, 0, 1, 0]
    # d^3 against 16 d(d+1)/2: 10 costs 1000 and 880, 40 costs 64000 and 13120; only below 8.9 is inverting cheaper
    mixed = balanced(
        of(8, 9, 7, 40), 2, lambda factor: 1.0 * factor.dimension**3, lambda factor: 16.0 * factor.elements
    )
    assert mixed == [EVERYWHERE, 1, EVERYWHERE, 0]


def test_each_factor_has_its_own_seconds_and_loads_are_dimensions() -> None:
    factors = of(10, 10, 6, 5)
    measured_s = {"0.a": 9.0, "1.a": 1.0, "2.a": 9.0, "3.a": 9.0}
    # 10 to 0; the second 10 is NCT and burdens nobody; 6 to 1, 5 to 1 although it has 9 s already
    owners = balanced(factors, 2, lambda factor: measured_s[factor.name], lambda factor: 2.0)
    assert owners == [0, EVERYWHERE, 1, 1]


@pytest.mark.parametrize(
    ("weights", "workers", "owners"),
    [
        ([1, 1, 1, 1], 2, [0, 0, 1, 1]),
        ([9, 1, 1, 1, 9], 3, [0, 1, 1, 1, 2]),
        ([3, 3, 1, 5, 2], 2, [0, 0, 0, 1, 1]),
        ([4, 1, 1], 3, [0, 1, 2]),
        ([9, 1, 1, 1], 3, [0, 1, 1, 2]),  # 9 is the least; the last worker is not left empty for it
        ([0, 0, 0], 3, [0, 1, 2]),
        ([5, 6], 4, [0, 1]),
        ([5, 6, 7], 1, [0, 0, 0]),
        ([], 3, []),
    ],
)
def test_blocks_told_by_hand(weights: list[float], workers: int, owners: list[int]) -> None:
    assert blocks(weights, workers) == owners


def test_no_other_blocks_are_lighter() -> None:
    chance = random.Random(7)
    for _ in range(300):
        count, workers = chance.randint(1, 9), chance.randint(1, 5)
        whole = chance.random() < 0.7
        weights = [chance.randint(0, 12) if whole else chance.random() for _ in range(count)]
        owners = blocks(weights, workers)
        assert owners == sorted(owners)
        assert set(owners) == set(range(min(count, workers)))
        assert max(loads(weights, owners, workers)) == pytest.approx(lightest(weights, workers), rel=1e-12)


def test_blocks_of_many_factors_and_workers_are_found_at_once() -> None:
    """However many factors there are: a search by dynamic programming over all of them takes minutes."""
    chance = random.Random(3)
    weights = [chance.uniform(16, 4096) for _ in range(1000)]
    owners, calls = counted(lambda: blocks(weights, 64))
    _, calls_of_few = counted(lambda: blocks(weights[:100], 64))
    assert calls < 1.5 * calls_of_few
    assert calls < 4 * 64 * 64, "some sixty steps of a bisection, each of which asks once for every worker"
    assert set(owners) == set(range(64))
    assert max(loads(weights, owners, 64)) < sum(weights) / 64 + max(weights)


def test_factors_merge_while_waiting_costs_less_than_a_start() -> None:
    factors = of(4, 4, 4, 4, after_s=1.0)  # 40 bytes each, a second apart
    assert groups(factors, Cost(1.5, 0.0)) == [[0, 1, 2, 3]]
    assert groups(factors, Cost(0.5, 0.0)) == [[0], [1], [2], [3]]
    assert groups(factors, Cost(0.5, 0.05)) == [[0], [1, 2], [3]]  # 2.5 s from 1 on, then 4.5 s from 3.5 on
    assert groups([], Cost(0.5, 0.0)) == groups([], Cost(0.5, 0.0), []) == []


def test_factors_of_two_owners_never_share_a_reduction() -> None:
    factors = of(4, 4, 4, 4, after_s=1.0)
    assert groups(factors, Cost(1.5, 0.0), [0, 0, 1, 1]) == [[0, 1], [2, 3]]
    assert groups(factors, Cost(1.5, 0.0), [0, 1, EVERYWHERE, EVERYWHERE]) == [[0], [1], [2, 3]]
    # that of owner 0 is sent until 3.5, so that the next waits until the one after it is there, at 3
    assert groups(factors, Cost(0.5, 0.05), [0, 1, 1, 1]) == [[0], [1, 2], [3]]
    assert groups(factors[1:], Cost(0.5, 0.0), [1, 1, 1]) == [[0], [1], [2]]


def test_groups_by_size_end_where_they_are_full_and_where_the_owner_changes() -> None:
    factors = of(4, 4, 4, 4, 9, 1)  # 40 bytes each, then 180 and 4
    assert groups_by_size(factors, 120) == [[0, 1, 2], [3], [4], [5]]
    assert groups_by_size(factors, 120, [0, 0, 1, 1, 1, 1]) == [[0, 1], [2, 3], [4], [5]]
    assert groups_by_size(factors, 1000, [0, 1, 0, 0, EVERYWHERE, EVERYWHERE]) == [[0], [1], [2, 3], [4, 5]]
    assert groups_by_size([], 100) == []


def test_groups_hold_each_factor_once_in_order_and_one_owner() -> None:
    chance = random.Random(11)
    for _ in range(200):
        count, workers = chance.randint(1, 30), chance.randint(1, 5)
        factors = [
            dataclasses.replace(factor, after_s=chance.random())
            for factor in of(*(chance.randint(1, 50) for _ in range(count)))
        ]
        owners: list[int | None] = [chance.choice([EVERYWHERE, *range(workers)]) for _ in factors]
        cost = Cost(chance.random(), chance.random() / 1000)
        for found in (groups(factors, cost, owners), groups_by_size(factors, chance.randint(1, 9000), owners)):
            assert [i for group in found for i in group] == list(range(count))
            assert all(len({owners[i] for i in group}) == 1 for group in found)


@pytest.mark.parametrize("owners", [[], [0], [0, 0, 0, 0, 0]])
def test_owners_are_as_many_as_factors(owners: list[int | None]) -> None:
    with pytest.raises(ValueError, match="zip"):
        groups(PAIR, Cost(1.0, 0.0), owners)
    with pytest.raises(ValueError, match="zip"):
        groups_by_size(PAIR, 100, owners)


def test_a_broadcast_takes_each_element_to_all_others() -> None:
    assert broadcast_bytes(34, 4) == 3 * 136
    assert broadcast_bytes(34, 1) == 0
