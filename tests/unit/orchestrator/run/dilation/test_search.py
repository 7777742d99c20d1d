"""The search for a dilation, against machines whose need is known."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.orchestrator.observation.verdict.lateness_rules import AIM_LATE, LATE_SUSPECT
from testbed.orchestrator.run.dilation.first_guess import on_grid
from testbed.orchestrator.run.dilation.search import MAX_STEP, UNTRIED_RATIO, WORTH_RATIO, Search
from testbed.orchestrator.run.dilation.trial import Trial

TRIALS = 12


def trial(dilation: float, needed: float) -> Trial:
    """Of a machine on which computing fits from `needed` on; half of a step is computing."""
    late = max(0.0, needed / dilation - 1) / 2
    return Trial(
        dilation=dilation,
        steps=4,
        step_s=0.1,
        saw_exchange=True,
        late_ratio=late,
        late_doubt=0.0,
        late_device_ratio=0.5,
        queued_ratio=0.0,
        computing_ratio=0.5,
        computing_dilation=needed / 1.15,
        busy_ratio=0.1,
        others_ratio=0.0,
        delay_line_ratio=0.1,
    )


def search(first: float, needed: float, most: float = 1000.0, trials: int = TRIALS) -> tuple[Search, int]:
    search, count = Search(first, most), 0
    while search.wants_another and count < trials:
        search.take(trial(search.dilation, needed))
        count += 1
    search.give_up()
    return search, count


@given(st.floats(1.0, 40.0), st.floats(1.0, 40.0))
def test_what_is_found_holds_and_is_little_more_than_needed(first: float, needed: float) -> None:
    found, count = search(round(first, 2), needed)
    assert count < TRIALS
    assert trial(found.dilation, needed).holds
    assert found.dilation <= max(1.25 * needed, needed + 0.1)


def test_a_first_guess_that_is_right_is_kept_after_one_trial() -> None:
    assert search(2.0, 1.95)[1] == 1
    assert search(2.0, 1.95)[0].dilation == 2.0


def test_where_the_budget_ends_after_a_trial_that_failed_the_next_guess_counts_with_a_margin() -> None:
    found, _ = search(2.0, 3.0, trials=1)
    assert found.dilation == pytest.approx(UNTRIED_RATIO * 3.0, abs=0.2)


def test_between_one_that_held_and_a_far_smaller_one_that_failed_another_is_tried() -> None:
    found = Search(8.0, 1000.0)
    found.take(trial(8.0, 2.0))
    assert found.dilation == 4.0
    found.take(trial(4.0, 5.0))
    assert found.wants_another and 4.0 * WORTH_RATIO <= found.dilation < 8.0 / WORTH_RATIO
    found.take(trial(found.dilation, 5.0))
    assert found.dilation < 8.0 / WORTH_RATIO


def test_where_it_ends_after_one_that_held_that_one_counts() -> None:
    found, _ = search(8.0, 3.0, trials=1)
    assert found.dilation == 8.0


def test_lateness_that_falls_less_than_foreseen_is_followed_by_a_larger_raise() -> None:
    found = Search(1.0, 1000.0)
    late_by = {1.0: 0.08, 1.15: 0.06}
    for dilation, late_ratio in late_by.items():
        assert found.dilation == pytest.approx(dilation, abs=0.05)
        found.take(dataclasses.replace(trial(dilation, 1.0), late_ratio=late_ratio))
    assert found.dilation == pytest.approx(1.15 + (0.06 - AIM_LATE) / 0.02 * 0.15, abs=0.06)


@pytest.mark.parametrize("first", [1.0, 1.65, 2.5])
@pytest.mark.parametrize("device", [0.0, 0.02, 0.1])
def test_late_stretches_that_the_device_has_little_time_for_are_made_good_without_excess(
    first: float, device: float
) -> None:
    """The wall's time of what is late is 6 % of a step at k = 1: beside no time of the device, at least 3 is needed."""
    needed = 0.06 + device
    search, tried = Search(first, 1000.0), 0
    while search.wants_another and tried < TRIALS:
        late = max(0.0, needed / search.dilation - device)
        search.take(dataclasses.replace(trial(search.dilation, 1.0), late_ratio=late, late_device_ratio=device))
        tried += 1
    search.give_up()
    least = needed / (device + LATE_SUSPECT)
    assert least <= search.dilation <= max(first, 1.5 * least) and tried <= 4


def test_lateness_that_does_not_fall_is_followed_by_the_largest_raise() -> None:
    found = Search(1.0, 1000.0)
    for dilation in (1.0, 1.2):
        found.take(dataclasses.replace(trial(dilation, 1.0), late_ratio=0.06))
    assert found.dilation == 1.2 * MAX_STEP


def test_links_that_bear_no_more_are_given_no_more() -> None:
    found, count = search(2.0, 9.0, most=4.0)
    assert (found.dilation, count) == (4.0, 2)


def test_it_stays_where_this_machine_fills_the_links() -> None:
    search = Search(4.0, 100.0, 3.0)
    for _ in range(TRIALS):
        if search.wants_another:
            search.take(trial(search.dilation, 1.0))
    assert search.dilation == 3.0


def test_one_that_failed_is_not_tried_again() -> None:
    search = Search(2.0, 1000.0)
    search.take(trial(2.0, 2.4))
    held = search.dilation
    assert held >= 2.4
    search.take(trial(held, 1.0))  # the machine has become free meanwhile
    assert search.dilation >= WORTH_RATIO * 2.0 or not search.wants_another


@pytest.mark.parametrize(
    ("busy_ratio", "queued_ratio", "most", "taken"),
    [
        *((None, None, 9.0, 4.6), (0.5, None, 9.0, 4.6), (0.9, None, 9.0, 4.6), (1.0, None, 9.0, 5.0)),
        *((1.0, None, 4.8, 4.8), (None, None, 4.2, 4.2), (0.5, 0.07, 9.0, 4.6), (1.0, 0.07, 9.0, 5.0)),
        *((0.5, 0.13, 9.0, 8.0), (None, 0.13, 6.0, 6.0)),
    ],
)
def test_of_steps_longer_than_a_pilot_busy_cores_and_the_first_ones_waits_are_known(
    busy_ratio: float | None, queued_ratio: float | None, most: float, taken: float
) -> None:
    search = Search(4.0, most)
    search.take_hints(busy_ratio, queued_ratio)
    assert (search.dilation, search.wants_another) == (taken, False)


def test_what_was_to_be_tried_next_gets_one_margin_where_no_step_ended() -> None:
    search = Search(2.0, 1000.0)
    search.take(trial(2.0, 2.4))
    asked = search.dilation
    search.take_hints(None, None)
    assert (search.dilation, search.wants_another) == (on_grid(UNTRIED_RATIO * asked), False)


@pytest.mark.parametrize(
    ("others_ratio", "most", "chosen"), [(0.0, 9.0, 2.0), (0.25, 9.0, 2.7), (0.25, 2.4, 2.4), (1.02, 9.0, 4.0)]
)
def test_beside_others_a_run_gets_the_time_that_they_may_take(others_ratio: float, most: float, chosen: float) -> None:
    search = Search(2.0, most)
    search.take(dataclasses.replace(trial(2.0, 1.9), others_ratio=others_ratio))
    assert (search.dilation, search.chosen) == (2.0, chosen)
    untried = Search(2.0 / UNTRIED_RATIO, most)
    untried.take_hints(None, None, others_ratio)
    assert untried.chosen == chosen
