"""When stable ranks count as settled, which ranks follow from them, and how many first layers times say to keep."""

from __future__ import annotations

import pytest

from testbed.worker.methods.low_rank.stable_rank import (
    Detector,
    Stack,
    has_settled,
    keep_by_times,
    scaled_rank,
    slopes,
    smoothed,
)

FLAT = [20.0] * 40
FALLING = [40.0 - step for step in range(40)]
LEVELLING = [5 + 30 * 0.8**step for step in range(60)]


def test_smoothing_begins_with_the_first_and_weighs_the_new_by_two_over_window_and_one() -> None:
    assert smoothed([4.0, 8.0, 0.0], 3) == [4.0, 6.0, 3.0]
    assert smoothed([], 3) == []


def test_slopes_are_of_both_neighbours_and_at_the_ends_of_one() -> None:
    assert slopes([1.0, 2.0, 5.0, 5.0]) == [1.0, 2.0, 1.5, 0.0]
    assert slopes([1.0]) == [0.0]


def test_only_what_changes_by_epsilon_or_less_has_settled() -> None:
    assert has_settled(FLAT, 15, 11, 0.1)
    assert not has_settled(FALLING, 15, 11, 0.1)
    assert has_settled(FALLING, 15, 11, 1.0)
    assert not has_settled([20.0 + (-1) ** step * step for step in range(40)], 15, 11, 0.1)  # up and down is a change


def test_nothing_has_settled_before_more_than_a_window_was_seen() -> None:
    assert not has_settled(FLAT[:15], 15, 11, 0.1)
    assert has_settled(FLAT[:16], 15, 11, 0.1)


def test_a_curve_that_levels_off_settles_once_and_later_for_a_smaller_epsilon() -> None:
    at = {eps: [n for n in range(61) if has_settled(LEVELLING[:n], 15, 11, eps)] for eps in (0.3, 0.1)}
    assert at[0.3][0] < at[0.1][0] < 60
    assert at[0.1] == list(range(at[0.1][0], 61))


def _detector(relaxed: bool = False) -> Detector:
    return Detector(["a", "b", "c"], window=4, tail=2, epsilon=0.1, relaxed=relaxed)


def _first_settled(detector: Detector, falls: dict[str, float], most: int = 60) -> int | None:
    """After how many observations of ranks that fall by so much each time until they stop at zero loss."""
    for seen in range(1, most):
        if detector.observe({name: 50 - fall * seen for name, fall in falls.items()}):
            return seen
    return None


def test_all_layers_have_to_settle_and_the_last_one_decides() -> None:
    assert _first_settled(_detector(), {"a": 0.0, "b": 0.0, "c": 0.0}) == 5
    detector = _detector()
    assert _first_settled(detector, {"a": 0.0, "b": 0.0, "c": 1.0}) is None
    assert detector.settled == {"a", "b"}


def test_a_layer_that_settled_once_is_not_asked_again() -> None:
    detector = _detector()
    for _ in range(5):
        detector.observe({"a": 9.0, "b": 9.0, "c": 9.0})
    assert detector.observe({"a": 90.0, "b": 1.0, "c": 50.0})


def test_relaxed_the_last_layers_may_change_more() -> None:
    for falls, relaxed, settles in (
        ({"a": 0.0, "b": 0.2, "c": 0.2}, False, False),
        ({"a": 0.0, "b": 0.2, "c": 0.2}, True, True),  # two are left: up to 0.25
        ({"a": 0.0, "b": 0.3, "c": 0.3}, True, False),
        ({"a": 0.0, "b": 0.0, "c": 0.45}, True, True),  # one is left: up to 0.5
        ({"a": 0.0, "b": 0.0, "c": 0.65}, True, False),
    ):
        assert (_first_settled(_detector(relaxed), falls) is not None) is settles, (falls, relaxed)


def test_a_detector_refuses_other_layers() -> None:
    with pytest.raises(ValueError, match="stable ranks of a; these were to come: a, b, c"):
        _detector().observe({"a": 1.0})


def test_a_rank_is_scaled_as_if_initial_weights_had_full_rank() -> None:
    assert scaled_rank(64, 17.7, 17.7) == 64
    assert scaled_rank(64, 8.85, 17.7) == 32
    assert scaled_rank(64, 8.86, 17.7) == 33  # rounded up
    assert scaled_rank(64, 30.0, 17.7) == 64  # never above the full one
    assert scaled_rank(64, 1.0, 17.7, floor=0.5) == 32
    assert scaled_rank(10, 0.0, 5.0) == 1


def test_stacks_before_the_first_that_is_fast_enough_stay_full() -> None:
    slow, fast = Stack(2, 1.0, 0.9), Stack(3, 1.0, 0.5)
    assert keep_by_times([slow, fast, slow], 1.5) == 2
    assert keep_by_times([fast, slow], 1.5) == 0
    assert keep_by_times([slow, slow], 1.5) == 4
    assert keep_by_times([Stack(1, 1.5, 1.0)], 1.5) == 0  # at the threshold it pays
