"""Bounds of tensors by hand, and what factors of layers and clients leave as it is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.error_bounds import (
    client_factors,
    downlink_bound,
    importance_factors,
    mean_update_rms,
    range_bound,
    share_of_levels,
    uplink_bound,
)

POSITIVE = st.floats(min_value=1e-6, max_value=1e6)


def test_alpha_is_the_noise_in_terms_of_the_update() -> None:
    bound = uplink_bound(0.3, 0.01, 1.0)
    assert bound == pytest.approx(0.0051961524)
    assert bound / math.sqrt(3) == pytest.approx(0.3 * 0.01)  # root mean square of what is uniform on [-e, e]


def test_the_server_is_four_clients_as_exact_as_one_of_sixteen() -> None:
    assert downlink_bound(0.3, 0.01, 16, 1.0) == pytest.approx(0.0051961524 / 4)
    assert downlink_bound(0.3, 0.01, 1, 1.0) == uplink_bound(0.3, 0.01, 1.0)


def test_no_bound_is_looser_than_a_tenth_of_the_range_whatever_multiplies_it() -> None:
    assert uplink_bound(0.3, 0.01, 0.04) == pytest.approx(0.004)
    assert uplink_bound(0.3, 0.01, 0.04, rho=0.05) == pytest.approx(0.002)
    assert uplink_bound(0.3, 0.01, 1.0, factor=4.0) == pytest.approx(0.0207846097)
    assert uplink_bound(0.3, 0.01, 0.1, factor=4.0) == pytest.approx(0.01)
    assert downlink_bound(0.3, 0.01, 4, 0.04, factor=0.5) == pytest.approx(0.0051961524 / 4)


def test_what_has_not_changed_is_not_sent_and_what_is_constant_is_exact() -> None:
    assert uplink_bound(0.3, 0.0, 1.0) is None
    assert downlink_bound(0.3, 0.0, 4, 1.0) is None
    assert uplink_bound(0.3, 0.01, 0.0) == 0.0


@given(alpha=POSITIVE, wider=st.floats(min_value=1, max_value=100), update=POSITIVE, clients=st.integers(1, 1000))
def test_a_larger_alpha_or_update_loosens_and_more_clients_tighten(
    alpha: float, wider: float, update: float, clients: int
) -> None:
    bound = downlink_bound(alpha, update, clients, 10.0)
    assert bound is not None
    assert (downlink_bound(alpha * wider, update, clients, 10.0) or 0) >= bound
    assert (downlink_bound(alpha, update * wider, clients, 10.0) or 0) >= bound
    assert (downlink_bound(alpha, update, clients + 1, 10.0) or 0) <= bound <= 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_what_is_not_finite_is_no_bound(bad: float) -> None:
    with pytest.raises(ValueError, match=r"alpha=.*\nupdate_rms=.*\nvalue_range="):
        uplink_bound(bad, bad, bad)
    with pytest.raises(ValueError, match=r"share=.*\nvalue_range="):
        range_bound(bad, bad)
    with pytest.raises(ValueError, match=r"sensitivities\.one=.*\nsizes\.one=0"):
        importance_factors({"one": bad}, {"one": 0})
    with pytest.raises(ValueError, match=r"strength=.*\naccuracies\[0\]="):
        client_factors([bad], bad)
    with pytest.raises(ValueError, match=r"clients=0"):
        downlink_bound(0.3, 0.1, 0, 1.0)


def test_of_the_range_a_bound_is_a_share_or_half_a_bin() -> None:
    assert range_bound(0.01, 3.0) == pytest.approx(0.03)
    assert [share_of_levels(levels) for levels in (1, 4, 50)] == [0.5, 0.125, 0.01]


def test_the_mean_update_goes_by_samples_and_needs_some() -> None:
    assert mean_update_rms([0.1, 0.5], [300, 100]) == pytest.approx(0.2)
    with pytest.raises(ValueError, match=r"nobody has trained"):
        mean_update_rms([0.1], [0])
    with pytest.raises(ValueError, match=r"samples: 1 of them, for 2 clients"):
        mean_update_rms([0.1, 0.2], [3])


def test_layers_that_bend_the_loss_are_tight_within_limits() -> None:
    # (1 * 4 + 3 * 0) / 4 = 1 on average over elements
    assert importance_factors({"small": 4.0, "large": 0.0}, {"small": 1, "large": 3}) == {"small": 0.5, "large": 4.0}
    far = importance_factors({"one": 1000.0, "two": 1.0}, {"one": 1, "two": 999})
    assert far == {"one": 0.25, "two": pytest.approx(math.sqrt(1.999))}
    assert importance_factors({"one": 0.0}, {"one": 7}) == {"one": 1.0}
    with pytest.raises(ValueError, match=r"in one of them alone: one, two"):
        importance_factors({"one": 1.0}, {"two": 7})


@given(st.lists(st.tuples(st.floats(1, 15), st.integers(1, 10**6)), min_size=1, max_size=6))
def test_factors_within_limits_cost_the_loss_what_equal_bounds_do_and_fewer_bits(
    layers: list[tuple[float, int]],
) -> None:
    sensitivities = {str(at): h for at, (h, _) in enumerate(layers)}
    sizes = {str(at): size for at, (_, size) in enumerate(layers)}
    factors = importance_factors(sensitivities, sizes)
    cost = sum(sizes[name] * sensitivities[name] * factor**2 for name, factor in factors.items())
    assert cost == pytest.approx(sum(h * size for h, size in layers))
    assert sum(sizes[name] * math.log(factor) for name, factor in factors.items()) >= -1e-9 * sum(sizes.values())


def test_clients_behind_the_mean_are_tight() -> None:
    assert client_factors([0.9, 0.7], 5.0) == pytest.approx([math.exp(0.5), math.exp(-0.5)])
    assert client_factors([0.9, 0.2, 0.4], 0.0) == [1.0, 1.0, 1.0]
