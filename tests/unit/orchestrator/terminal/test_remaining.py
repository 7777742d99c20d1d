"""How long the rest of a sweep takes: by runs that have ended, by what was expected, without those nobody knows of."""

from __future__ import annotations

import pytest

from testbed.orchestrator.terminal.remaining import Remaining


def remaining(expected_s: dict[str, float | None]) -> Remaining:
    """Runs of which the first letter is their kind."""
    return Remaining({one: one[0] for one in expected_s}, expected_s)


def test_expected_seconds_add_up_and_count_down() -> None:
    found = remaining({"a1": 10.0, "b1": 20.0, "c1": 30.0})
    assert found.left(0.0) == (60.0, 0)
    found.begin("a1", 100.0)
    assert found.left(104.0) == (56.0, 0)
    assert found.left(130.0) == (50.0, 0), "what lasts longer takes nothing from the others"
    found.end("a1", 110.0, counts=True, again=False)
    assert found.left(110.0) == (50.0, 0)


def test_how_far_off_the_ended_ones_were_holds_for_the_others() -> None:
    found = remaining({"a1": 10.0, "b1": 20.0, "c1": 30.0})
    found.begin("a1", 0.0)
    found.end("a1", 15.0, counts=True, again=False)
    assert found.left(15.0) == (pytest.approx(1.5 * 50), 0)


def test_runs_of_a_kind_take_what_the_ended_ones_took() -> None:
    found = remaining({"a1": None, "a2": None, "b1": 20.0})
    assert found.left(0.0) == (20.0, 2), "and are counted apart before that"
    found.begin("a1", 0.0)
    assert found.left(5.0) == (20.0, 2)
    found.end("a1", 70.0, counts=True, again=False)
    assert found.left(70.0) == (90.0, 0)


def test_of_nothing_but_unknown_ones_nothing_is_said() -> None:
    assert remaining({"a1": None, "b1": None}).left(0.0) == (None, 2)
    assert remaining({}).left(0.0) == (0.0, 0)


def test_a_run_that_failed_tells_nothing_and_is_made_once_more() -> None:
    found = remaining({"a1": 10.0, "b1": 10.0})
    found.begin("a1", 0.0)
    found.end("a1", 1.0, counts=False, again=True)
    assert found.left(1.0) == (20.0, 0)
    found.begin("a1", 1.0)
    found.end("a1", 2.0, counts=False, again=False)
    assert found.left(2.0) == (10.0, 0)


def test_what_is_left_for_another_call_is_left_out() -> None:
    found = remaining({"a1": 10.0, "b1": None})
    found.leave("b1")
    assert found.left(0.0) == (10.0, 0)


def test_several_at_a_time_share_the_rest() -> None:
    found = remaining({"a1": 10.0, "b1": 10.0, "c1": 40.0, "d1": 40.0})
    found.begin("a1", 0.0)
    found.begin("b1", 0.0)
    assert found.left(0.0) == (50.0, 0)
    found.end("a1", 10.0, counts=True, again=False)
    found.end("b1", 10.0, counts=True, again=False)
    found.begin("c1", 10.0)
    found.begin("d1", 10.0)
    assert found.left(20.0) == (30.0, 0)
    found.end("d1", 20.0, counts=False, again=False)
    assert found.left(20.0) == (30.0, 0), "one run cannot be shared"
