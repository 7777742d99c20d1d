"""The line about a run: what it has, what it leaves out, and how long the run still takes."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.terminal.run_state import SEAL_S, RunState
from tests.unit.orchestrator.terminal.test_display import link_event


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    return compose(["steps=10"])


def step(rank: int, step: int, loss: float = 1.0) -> dict[str, Any]:
    return {"event": "step", "rank": rank, "step": step, "loss": loss, "step_s": 0.1, "t_s": 1.0}


def test_the_step_is_the_slowest_ranks_and_the_loss_the_mean(spec: RunSpec) -> None:
    state = RunState(spec, 0.0)
    for rank, number, loss in ((0, 5, 1.0), (1, 4, 3.0)):
        state.add(step(rank, number, loss), 1.0)
    assert (state.step, state.loss) == (4, 2.0)


def test_the_line_has_all_of_it_and_leaves_out_what_matters_least(spec: RunSpec) -> None:
    state = RunState(spec, 0.0, steps=10, grade="suspect")
    for second in (1, 2, 3, 4, 5):
        state.add(step(0, second, 0.25), 10.0 + 2 * second)
    for event in (
        {"event": "evaluation", "name": "accuracy", "value": 0.9},
        {"event": "host", "cpu_idle_ratio": 0.37},
        {**link_event(2.0, 125_000_000), "from": "virginia"},
        link_event(1.0, 0),
        link_event(2.0, 125_000_000),
    ):
        state.add(event, 20.0)
    whole = "step 5/10 | loss 0.25 | accuracy 0.9 | 100 ms a step | WAN 250 MB | CPU idle 37% | suspect | 12 s left"
    assert state.line(200, 20.0) == whole.replace("12 s left", f"{5 * 2 + SEAL_S:.0f} s left")
    assert "CPU idle" not in state.line(100, 20.0) and "WAN 250 MB" in state.line(100, 20.0)
    assert state.line(35, 20.0) == "step 5/10 | suspect | 12 s left"
    assert state.line(9, 20.0) == "step 5/10" and state.line(1, 20.0) == "…"


def test_before_the_first_steps_the_rest_is_what_was_expected(spec: RunSpec) -> None:
    state = RunState(spec, 100.0, steps=10, expected_s=50.0)
    before = state.left_s(100.0)
    assert before is not None and 50 + SEAL_S < before < 50 + SEAL_S + 20
    assert state.left_s(103.0) == pytest.approx(before - 3)
    assert state.left_s(500.0) == 50 + SEAL_S, "a set-up that lasts longer says nothing about the training"
    state.add(step(0, 1), 110.0)  # one second after the beginning, by its own time
    assert state.left_s(110.0) == pytest.approx(9 * spec.dilation + SEAL_S), "what is seen counts"
    assert RunState(spec, 0.0).left_s(5.0) is None


def test_until_the_first_exchange_the_rest_is_what_was_expected(spec: RunSpec) -> None:
    state = RunState(spec, 0.0, steps=40, expected_s=60.0, cycle=10)
    for number in range(1, 10):
        state.add({**step(0, number), "t_s": 0.1 * number}, 10.0 + 0.1 * number)
    assert state.left_s(20.0) == pytest.approx(60 - 10 + SEAL_S)
    assert state.left_s(90.0) == pytest.approx(45 + SEAL_S), "of the other three cycles"
    state.add({**step(0, 10), "t_s": 80.0}, 90.0)
    assert state.left_s(90.0) == pytest.approx(3 * 80 + SEAL_S)
    state.add({**step(0, 19), "t_s": 81.0}, 91.0)
    assert state.left_s(91.0) == pytest.approx(3 * 80 - 1 + SEAL_S)


def test_a_long_stage_leaves_room_for_the_time_left(spec: RunSpec) -> None:
    state = RunState(
        spec, 0.0, steps=10, expected_s=50.0, stage="workers connected: links measured again", grade="valid"
    )
    assert state.line(40, 0.0) == "workers connected: … | valid | 60 s left"
    assert [len(state.line(width, 0.0)) <= width for width in range(1, 100)] == [True] * 99
