"""Student's t against the printed tables, and what counts as a value."""

from __future__ import annotations

import random

import pytest

from testbed.analysis.comparison.intervals import estimate, student_t


@pytest.mark.parametrize(
    ("freedom", "t"),
    # NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2, two-sided 95 %
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228), (30, 2.042), (100, 1.984)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, t: float) -> None:
    assert student_t(freedom) == pytest.approx(t, abs=6e-4)


def test_another_coverage() -> None:
    assert student_t(10, 0.90) == pytest.approx(1.812, abs=6e-4)
    assert student_t(10, 0.99) == pytest.approx(3.169, abs=6e-4)


def test_one_seed_has_no_interval() -> None:
    found = estimate({0: [1.0]})
    assert found is not None and (found.mean, found.half_width, found.low, found.high) == (1.0, None, None, None)
    assert estimate({}) is None and estimate({0: []}) is None


def test_repeats_of_a_seed_count_once() -> None:
    found = estimate({0: [1.0, 3.0], 1: [4.0]})
    assert found is not None and (found.mean, found.seeds, found.runs) == (3.0, 2, 3)
    assert found.half_width == pytest.approx(12.7062 * 2**0.5 / 2**0.5, rel=1e-4), "the deviation of 2 and 4 is √2"
    repeated = estimate({0: [1.0, 2.0, 3.0]})
    assert repeated is not None and repeated.half_width is None, "three runs of one seed say nothing of others"


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    values = random.Random(7)
    held = 0
    for _ in range(2000):
        found = estimate({seed: [values.gauss(5.0, 2.0)] for seed in range(4)})
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= 5.0 <= found.high
    assert 0.935 < held / 2000 < 0.965
