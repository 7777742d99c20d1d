"""Bounds of tensors by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.worker.methods.parameter_server.bounds.error_bounds import (
    importance_factors,
    mean_update_rms,
    pooled_rms,
    range_bound,
    share_of_levels,
    update_bound,
)

POSITIVE = st.floats(min_value=1e-6, max_value=1e6)


def test_alpha_is_the_noise_in_terms_of_the_update() -> None:
    bound = update_bound(0.3, 0.01, 1.0)
    assert bound == pytest.approx(0.0051961524)
    assert bound / math.sqrt(3) == pytest.approx(0.3 * 0.01)  # root mean square of what is uniform on [-e, e]


def test_one_step_for_several_tensors_goes_by_all_their_elements() -> None:
    assert pooled_rms([3.0, 0.0], [16, 20]) == pytest.approx(2.0)
    assert pooled_rms([0.5], [7]) == 0.5 and pooled_rms([], []) == 0.0


def test_no_bound_is_looser_than_a_tenth_of_the_range() -> None:
    assert update_bound(0.3, 0.01, 0.04) == pytest.approx(0.004)
    assert update_bound(0.3, 0.01, 0.04, rho=0.05) == pytest.approx(0.002)


def test_what_has_not_changed_is_not_sent_and_what_is_constant_is_exact() -> None:
    assert update_bound(0.3, 0.0, 1.0) is None
    assert update_bound(0.3, 0.01, 0.0) == 0.0


@given(alpha=POSITIVE, wider=st.floats(min_value=1, max_value=100), update=POSITIVE)
def test_a_larger_alpha_or_update_loosens(alpha: float, wider: float, update: float) -> None:
    bound = update_bound(alpha, update, 10.0)
    assert bound is not None
    assert bound <= (update_bound(alpha * wider, update, 10.0) or 0) <= 1.0
    assert bound <= (update_bound(alpha, update * wider, 10.0) or 0) <= 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_what_is_not_finite_is_no_bound(bad: float) -> None:
    with pytest.raises(ValueError, match=r"alpha=.*\nupdate_rms=.*\nvalue_range="):
        update_bound(bad, bad, bad)
    with pytest.raises(ValueError, match=r"share=.*\nvalue_range="):
        range_bound(bad, bad)


def test_of_the_range_a_bound_is_a_share_or_half_a_bin() -> None:
    assert range_bound(0.01, 3.0) == pytest.approx(0.03)
    assert [share_of_levels(levels) for levels in (1, 4, 50)] == [0.5, 0.125, 0.01]


def test_bounds_are_as_much_tighter_as_the_root_of_what_gradients_squares_are_more() -> None:
    # a mean of 2.5 of two as large; of 1.6 where the one with 1 has four times as many elements
    assert importance_factors([1.0, 4.0], [10, 10]) == pytest.approx([math.sqrt(2.5), math.sqrt(2.5 / 4)])
    assert importance_factors([1.0, 4.0], [40, 10]) == pytest.approx([math.sqrt(1.6), math.sqrt(1.6 / 4)])
    assert importance_factors([0.3, 0.3, 0.3], [7, 1000, 1]) == pytest.approx([1, 1, 1])
    assert importance_factors([1e-9], [50]) == pytest.approx([1.0])


def test_no_tensor_is_more_than_four_times_as_important_and_nothing_is_where_no_gradient_is() -> None:
    assert importance_factors([1.0, 1e-4, 0.0, 1e6], [1000, 10, 10, 1]) == [4.0, 4.0, 4.0, 0.25]
    assert importance_factors([0.0, 0.0], [5, 6]) == [1.0, 1.0]
    assert importance_factors([], []) == []
    with pytest.raises(ValueError, match=r"squares\[0\]=nan.*\nsquares\[1\]=-1.*\nsquares\[2\]=inf"):
        importance_factors([math.nan, -1.0, math.inf], [1, 1, 1])
    with pytest.raises(ValueError, match=r"counts: 1 of them, for 2 tensors"):
        importance_factors([1.0, 1.0], [1])


@given(
    layers=st.lists(
        st.tuples(st.floats(1, 3), st.integers(1, 10**6), st.floats(0.5, 2)),  # within what is not clipped
        min_size=1,
        max_size=6,
    )
)
def test_of_bounds_of_one_error_budget_those_by_importance_take_the_fewest_bits(
    layers: list[tuple[float, int, float]],
) -> None:
    squares, counts = [layer[0] for layer in layers], [layer[1] for layer in layers]

    def budget(factors: list[float]) -> float:
        return math.fsum(n * h * e * e / 3 for n, h, e in zip(counts, squares, factors, strict=True))

    def bits(factors: list[float]) -> float:
        return math.fsum(n * math.log(1 / e) for n, e in zip(counts, factors, strict=True))

    ours, equal = importance_factors(squares, counts), [1.0] * len(layers)
    assert budget(ours) == pytest.approx(budget(equal))
    others = [e * layer[2] for e, layer in zip(ours, layers, strict=True)]
    others = [e * math.sqrt(budget(equal) / budget(others)) for e in others]
    assert bits(ours) <= min(bits(equal), bits(others)) + 1e-9 * sum(counts)


def test_the_mean_update_goes_by_samples_and_needs_some() -> None:
    assert mean_update_rms([0.1, 0.5], [300, 100]) == pytest.approx(0.2)
    with pytest.raises(ValueError, match=r"nobody has trained"):
        mean_update_rms([0.1], [0])
    with pytest.raises(ValueError, match=r"samples: 1 of them, for 2 clients"):
        mean_update_rms([0.1, 0.2], [3])
