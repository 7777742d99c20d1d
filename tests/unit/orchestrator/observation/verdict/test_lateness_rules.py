from __future__ import annotations

import pytest

from testbed.orchestrator.observation.verdict.lateness_rules import Lateness


def step(number: int, rank: int, late_s: float | None, queued_s: float = 0.0) -> dict[str, object]:
    return {"event": "step", "step": number, "rank": rank, "step_s": 1.0, "late_s": late_s, "queued_s": queued_s}


def lateness(*events: dict[str, object]) -> Lateness:
    rule = Lateness()
    for event in events:
        rule.add(event)
    return rule


@pytest.mark.parametrize(("late_s", "grades"), [(0.019, []), (0.021, [False]), (0.049, [False]), (0.051, [True])])
def test_late_phases_are_held_against_the_time_of_all_steps(late_s: float, grades: list[bool]) -> None:
    rule = lateness(*(step(n, rank, late_s if rank == n % 2 else 0.0) for n in range(4) for rank in range(2)))
    assert [grave for grave, _ in rule.findings()] == grades


@pytest.mark.parametrize(("queued_s", "grades"), [(0.099, []), (0.101, [False]), (0.301, [True])])
def test_messages_that_wait_for_cores_count_by_the_mean_of_ranks(queued_s: float, grades: list[bool]) -> None:
    rule = lateness(step(1, 0, 0.0, 2 * queued_s), step(1, 1, 0.0, 0.0))
    assert [grave for grave, _ in rule.findings()] == grades


def test_a_run_that_no_device_paces_is_never_late() -> None:
    rule = lateness(step(1, 0, None, 0.9))
    assert not rule.is_known
    assert list(rule.findings()) == []
