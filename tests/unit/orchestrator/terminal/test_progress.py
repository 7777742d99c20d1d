"""Arithmetic of progress: how long some work still takes, and when a log gets a line about it."""

from __future__ import annotations

import pytest

from testbed.orchestrator.terminal.progress import Progress, SparseTimes
from testbed.orchestrator.terminal.spoken import spoken_left


def fed(progress: Progress, times_s: dict[float, float]) -> Progress:
    for done, now_s in times_s.items():
        progress.at(done, now_s)
    return progress


def test_even_work_ends_when_it_was_said_to() -> None:
    progress = Progress("laws", 10)
    assert progress.left_s(0.0) is None, "nothing is known"
    progress.at(0, 100.0)
    assert progress.left_s(101.0) is None, "there is no speed yet"
    for done in range(1, 10):
        progress.at(done, 100.0 + 3 * done)
        assert progress.left_s(101.0 + 3 * done) == pytest.approx(3 * (10 - done) - 1)
    progress.at(10, 130.0)
    assert progress.left_s(500.0) == 0


def test_a_look_between_two_items_counts_down_and_stops_where_one_is_overdue() -> None:
    progress = fed(Progress("steps", 10), {0: 0.0, 5: 50.0})
    assert [progress.left_s(now_s) for now_s in (50.0, 55.0, 60.0, 90.0)] == [50.0, 45.0, 40.0, 40.0]


def test_the_steps_of_a_cycle_tell_together_how_long_they_take() -> None:
    """As local SGD has them: nine steps in 0.1 s each, the tenth with an exchange of 4.1 s; 5 s for ten."""
    progress, now_s = Progress("steps", 200, cycle=10), 0.0
    progress.at(0, now_s)
    for done in range(1, 200):
        now_s += 4.1 if done % 10 == 0 else 0.1
        progress.at(done, now_s)
        assert progress.done == done
        left_s = progress.left_s(now_s)
        if done < 10:
            assert left_s is None, "a burst is no speed"
        else:
            assert left_s == pytest.approx(100 - now_s)
    assert progress.left_s(now_s + 100) == 0, "the last cycle"


def test_the_later_half_tells() -> None:
    progress = Progress("runs", 40)
    for done in range(21):
        progress.at(done, 100.0 * done if done <= 10 else 1000.0 + 10 * (done - 10))
    assert progress.left_s(1100.0) == pytest.approx(20 * 10)


def test_what_begins_again_forgets_what_was() -> None:
    progress = fed(Progress("steps", 10), {0: 0.0, 9: 90.0})
    progress.at(0, 100.0)
    assert (progress.done, progress.left_s(100.0)) == (0, None)
    progress.at(1, 101.0)
    assert progress.left_s(101.0) == pytest.approx(9)


def test_no_total_no_end() -> None:
    progress = fed(Progress("steps"), {0: 0.0, 5: 5.0})
    assert progress.left_s(5.0) is None and progress.words(5.0) == "steps 5"


def test_times_that_stand_still_are_no_speed() -> None:
    progress = fed(Progress("steps", 10), {0: 5.0, 5: 5.0})
    assert progress.left_s(5.0) is None and progress.words(5.0) == "steps 5/10"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, ""), (-1.0, "0 s left"), (99.4, "99 s left"), (100.0, "2 min left"), (5990.0, "100 min left"),
     (9000.0, "2.5 h left")],
)  # fmt: skip
def test_seconds_are_spoken_with_a_unit_that_fits(seconds: float | None, words: str) -> None:
    assert spoken_left(seconds) == words


def test_a_log_gets_a_line_soon_and_then_one_a_minute() -> None:
    times = SparseTimes(105.0)
    due = [second for second in range(400) if times.is_due(100.0 + second)]
    assert due == [5, 10, 20, 40, 80, 140, 200, 260, 320, 380]
