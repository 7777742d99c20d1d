"""Which changes of a provisional grade are said."""

from __future__ import annotations

import pytest

from testbed.orchestrator.terminal.grade_changes import HOLD_S, GradeChanges


def said(grades: list[str | None]) -> list[tuple[int, str]]:
    """The second and the grade of each line, for one grade a second."""
    changes = GradeChanges()
    return [(second, changes.said) for second, grade in enumerate(grades) if changes.change(grade, float(second))]


def test_a_change_that_lasts_is_said_once_and_taken_back_once() -> None:
    hold = int(HOLD_S)
    assert said(["valid"] * 3 + ["suspect"] * 20 + ["valid"] * 20) == [(3 + hold, "suspect"), (23 + hold, "valid")]


@pytest.mark.parametrize("worse", ["suspect", "invalid"])
def test_a_change_that_does_not_last_is_not_said(worse: str) -> None:
    assert said(["valid", worse] * 30) == []
    assert said((["valid"] + [worse] * int(HOLD_S)) * 10) == []


def test_of_two_worse_grades_that_alternate_the_milder_is_said_once() -> None:
    assert said(["invalid", "suspect"] * 30) == [(int(HOLD_S), "suspect")]


def test_a_grade_that_gets_worse_step_by_step_is_said_in_both_steps() -> None:
    assert [grade for _, grade in said(["suspect"] * 10 + ["invalid"] * 10)] == ["suspect", "invalid"]
    assert [grade for _, grade in said(["invalid"] * 10 + ["suspect"] * 10)] == ["invalid", "suspect"]


def test_from_worse_to_better_without_what_was_said_between_begins_anew() -> None:
    """Suspect was said; invalid for three seconds and valid for three are no change that has lasted."""
    assert said(["suspect"] * 6 + (["invalid"] * 3 + ["valid"] * 3) * 5) == [(5, "suspect")]


def test_no_grade_is_no_change() -> None:
    assert said([None] * 20) == []
    assert said(["suspect", None] * 10) == [(6, "suspect")], "and ends none that lasts"
