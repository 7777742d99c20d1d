"""How much each client counts in a round."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.worker.methods.federated.aggregation.weighting import (
    Alike,
    ByProgress,
    BySamples,
    ByStaleness,
    Sent,
    Weighting,
    normalised_steps,
)

SENT = [Sent(client=0, weight=1.0, steps=2.0), Sent(client=1, weight=3.0, steps=4.0, staleness=3)]
POSITIVE = st.floats(1e-3, 1e3)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        (BySamples(), [1 / 4, 3 / 4]),
        (Alike(), [1 / 2, 1 / 2]),
        # tau = (1 * 2 + 3 * 4) / 4 = 3.5; tau p / a
        (ByProgress(), [3.5 * 0.25 / 2, 3.5 * 0.75 / 4]),
        (ByProgress(effective_steps=8), [8 * 0.25 / 2, 8 * 0.75 / 4]),
        (ByStaleness(), [1 / 2, 1 / 4]),  # 1 and 1 / sqrt(4), of two
        (ByStaleness(exponent=1), [1 / 2, 1 / 8]),
        (ByStaleness(exponent=0), [1 / 2, 1 / 2]),
    ],
)
def test_coefficients_told_by_hand(weighting: Weighting, expected: list[float]) -> None:
    assert weighting.coefficients(SENT) == pytest.approx(expected)
    with pytest.raises(ValueError, match="nothing to combine"):
        weighting.coefficients([])


@given(weights=st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=20), steps=POSITIVE)
def test_progress_is_samples_where_steps_are_equal_and_takes_as_many_steps_as_clients_do(
    weights: list[tuple[float, float]], steps: float
) -> None:
    equal = [Sent(client=index, weight=weight, steps=steps) for index, (weight, _) in enumerate(weights)]
    assert ByProgress().coefficients(equal) == pytest.approx(BySamples().coefficients(equal), rel=1e-9)
    different = [Sent(client=index, weight=weight, steps=own) for index, (weight, own) in enumerate(weights)]
    # in delta = steps * progress of all alike, the whole is tau * progress
    taken = sum(c * one.steps for c, one in zip(ByProgress().coefficients(different), different, strict=True))
    mean = sum(c * one.steps for c, one in zip(BySamples().coefficients(different), different, strict=True))
    assert taken == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.5, 0.9])
def test_normalised_steps_are_the_sum_of_what_gradients_count(steps: int, rate: float) -> None:
    # momentum: a buffer u = rho u + 1, of which each step takes one
    buffer = taken = 0.0
    for _ in range(steps):
        buffer = rate * buffer + 1
        taken += buffer
    assert normalised_steps(steps, momentum=rate) == pytest.approx(taken, rel=1e-6)
    # FedProx: each step shrinks what was before
    shrunk = 0.0
    for _ in range(steps):
        shrunk = (1 - rate) * shrunk + 1
    assert normalised_steps(steps, shrink=rate) == pytest.approx(shrunk, rel=1e-6)


def test_bad_numbers_are_refused_with_all_their_faults() -> None:
    with pytest.raises(
        ValueError, match=r"(?s)client 3: weight=0: .*\nclient 3: steps=nan: .*\nclient 3: staleness=-1: "
    ):
        Sent(client=3, weight=0, steps=math.nan, staleness=-1)
    with pytest.raises(ValueError, match=r"(?s)steps=0: .*\nmomentum=1: .*\nshrink=-1: "):
        normalised_steps(0, momentum=1, shrink=-1)
    with pytest.raises(ValueError, match="no sum for both"):
        normalised_steps(1, momentum=0.5, shrink=0.5)
    with pytest.raises(ValueError, match="effective_steps=0"):
        ByProgress(effective_steps=0)
    with pytest.raises(ValueError, match="exponent=-1"):
        ByStaleness(exponent=-1)
