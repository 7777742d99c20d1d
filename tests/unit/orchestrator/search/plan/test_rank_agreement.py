"""Predictions against what was measured, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.orchestrator.search.plan.rank_agreement import agreement, spearman


def test_by_hand() -> None:
    # ranks 1 2 3 4 against 2 1 3 4: 1 - 6 x 2 / (4 x 15)
    found = agreement([1.0, 2.0, 3.0, 4.0], [6.0, 5.0, 7.0, 9.0])
    assert found.spearman == pytest.approx(0.8)
    assert found.regret == pytest.approx(0.2)
    assert found.best_place == 2


def test_equal_values_have_the_mean_of_their_ranks() -> None:
    # ranks 1 2.5 2.5 4 against 1 2 3 4: 4.5 / sqrt(4.5 x 5)
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert spearman([1, 1], [1, 2]) is None
    assert spearman([1], [1]) is None


def test_of_equal_predictions_the_worst_counts() -> None:
    found = agreement([1.0, 1.0, 2.0], [4.0, 8.0, 9.0])
    assert (found.regret, found.best_place) == (1.0, 2)
    assert agreement([3.0], [5.0]).regret == 0


@given(st.lists(st.integers(1, 30), min_size=2, max_size=12, unique=True))
def test_only_order_counts(values: list[int]) -> None:
    a = [float(value) for value in values]
    assert spearman(a, [value**3 for value in a]) == pytest.approx(1)
    assert spearman(a, [-value for value in a]) == pytest.approx(-1)
    assert agreement(a, [2 * value for value in a]) == agreement(a, a)
    assert agreement(a, a).best_place == 1


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="measured: 1 for 2 plans") as found:
        agreement([1.0, float("inf")], [0.0])
    assert "predicted[1]=inf" in str(found.value) and "measured[0]=0.0" in str(found.value)
    with pytest.raises(ValueError, match="there is no plan"):
        agreement([], [])
    with pytest.raises(ValueError, match="1 values against 2"):
        spearman([1], [1, 2])
