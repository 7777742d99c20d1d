"""Which gradients share a bucket, rule by rule, on tensors whose buckets can be told by hand."""

from __future__ import annotations

import pytest

from testbed.core.costs.fusion import RULES, Cost, Gradient, cut, merged

LAYERED = [Gradient(100, "c"), Gradient(300, "c"), Gradient(50, "b"), Gradient(900, "a"), Gradient(10, "a")]


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        ("size", [2, 1, 1, 1]),  # 400, then 50 would make 450; 900 is alone
        ("one", [5]),
        ("layers", [2, 1, 2]),
    ],
)
def test_gradients_are_cut_by_the_rule(rule: str, counts: list[int]) -> None:
    assert cut(LAYERED, rule, 420) == counts


def test_the_first_bucket_is_small() -> None:
    even = [Gradient(10, str(i)) for i in range(60)]
    assert cut(even, "size", 500) == [50, 10]
    assert cut(even, "first_small", 500) == [2, 50, 8]


@pytest.mark.parametrize("rule", RULES)
def test_no_gradient_is_left_out_and_none_makes_no_bucket(rule: str) -> None:
    cost = Cost(1.0, 0.0)
    assert sum(cut(LAYERED, rule, 200, cost)) == len(LAYERED)
    assert cut([], rule, 200, cost) == []


def test_gradients_merge_while_the_link_is_busy_anyway() -> None:
    # the first takes 1 + 100 * 0.1 = 11 s from second 1 on; those of seconds 3, 5, 7 have come by 12
    gradients = [Gradient(100, "", 1.0), *(Gradient(20, "", 2.0) for _ in range(3)), Gradient(5, "", 20.0)]
    assert merged(gradients, Cost(1.0, 0.1)) == [1, 3, 1]


def test_gradients_merge_where_waiting_costs_less_than_a_start() -> None:
    gradients = [Gradient(10, "", 1.0) for _ in range(4)]
    assert merged(gradients, Cost(1.5, 1e-3)) == [4]  # each comes a second after the one before
    assert merged(gradients, Cost(0.5, 1e-3)) == [1, 1, 1, 1]


def test_tensors_that_are_apart_never_merge_and_the_link_stays_as_busy() -> None:
    # 11 s from second 1 on: the three of seconds 3, 5, 7 wait for second 12, though one of them is apart from the first
    gradients = [Gradient(100, "", 1.0), *(Gradient(20, "", 2.0) for _ in range(3)), Gradient(5, "", 20.0)]
    cost = Cost(1.0, 0.1)
    assert merged(gradients, cost, [True, False, False, False]) == [1, 3, 1]
    assert merged(gradients, cost, [False, True, False, False]) == [1, 1, 2, 1]
    assert merged(gradients[1:], cost) == [1, 1, 1, 1]  # without the first, nothing waits
    # the second alone is sent from 12 to 15, when the last two have come; with the third, from 12 to 17
    late = [*gradients[:3], Gradient(20, "", 9.5), Gradient(20, "", 0.5)]
    assert merged(late, cost, [False, True, False, False]) == [1, 1, 3]
    assert merged(late, cost) == [1, 2, 2]


def test_apart_says_something_of_every_two_neighbours_or_nothing() -> None:
    gradients = [Gradient(1, "", 0.0)] * 3
    assert merged(gradients, Cost(1.0, 0.1), [True, True]) == [1, 1, 1]
    assert merged(gradients, Cost(1.0, 0.1), [False, False]) == merged(gradients, Cost(1.0, 0.1), []) == [3]
    with pytest.raises(ValueError, match="longer"):
        merged(gradients, Cost(1.0, 0.1), [True] * 3)


def test_a_cost_is_fitted_to_a_start_and_to_bytes() -> None:
    cost = Cost.fitted(lambda size: 0.2 + 3e-6 * size, 1e6)
    assert (cost.start_s, cost.second_byte) == pytest.approx((0.2, 3e-6), rel=1e-4)
    assert cost.of(1000) == pytest.approx(0.203, rel=1e-4)
