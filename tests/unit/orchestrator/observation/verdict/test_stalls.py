"""A process that stood still does harm as far as steps took longer meanwhile, seen by the collector or not."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.observation.verdict.judge import _is_steady
from testbed.orchestrator.observation.verdict.stall_rules import Stalls

Event = dict[str, Any]


def run_of(
    spans_s: list[float], stopped: tuple[float, float] | None = None, payload_bytes: int | list[int] = 1000
) -> list[Event]:
    """Return the events of two ranks that take these steps, and of a collector that looks once a second."""
    events: list[Event] = []
    t_s = 0.0
    for number, span_s in enumerate(spans_s, 1):
        t_s += span_s
        sent = payload_bytes if isinstance(payload_bytes, int) else payload_bytes[number - 1]
        step = {"event": "step", "t_s": t_s, "step": number, "step_s": span_s, "payload_bytes": sent}
        events += [{**step, "rank": rank} for rank in (0, 1)]
    for second in range(1, int(t_s) + 1):
        is_stopped = stopped is not None and stopped[0] <= second < stopped[1]
        events.append({"event": "host", "t_s": float(second), "stopped_processes": int(is_stopped)})
    return events


def found(events: list[Event], *, has_steps: bool = True, is_steady: bool = True) -> list[tuple[bool, str]]:
    stalls = Stalls(has_steps=has_steps, is_steady=is_steady)
    for event in events:
        stalls.add(event)
    return list(stalls.findings())


@pytest.mark.parametrize("stopped_s", [5.0, 10.0, 20.0])
def test_a_stop_that_makes_a_short_step_long_is_invalid(stopped_s: float) -> None:
    spans_s = [0.025] * 400 + [stopped_s] + [0.025] * 400
    ((is_grave, text),) = found(run_of(spans_s, (10.0, 10.0 + stopped_s)))
    assert is_grave and "stopped" in text


def test_a_stop_inside_a_pacing_sleep_does_no_harm() -> None:
    stalls = Stalls(has_steps=True, is_steady=True)
    for event in run_of([10.0, 10.01, 10.0], (12.0, 17.0)):
        stalls.add(event)
    assert stalls.stopped_s() == [(11.0, 17.0)] and not list(stalls.findings())


def test_a_long_step_that_a_stop_made_longer_is_invalid() -> None:
    ((is_grave, _),) = found(run_of([10.0, 15.0, 10.0], (12.0, 17.0)))
    assert is_grave


@pytest.mark.parametrize(("spans_s", "has_steps"), [([30.0], True), ([], False), ([1.0] * 30, False)])
def test_a_stop_that_nothing_can_be_held_against_is_suspect(spans_s: list[float], has_steps: bool) -> None:
    events = run_of(spans_s or [30.0], (5.0, 8.0))
    ((is_grave, text),) = found(events if spans_s else events[2:], has_steps=has_steps)
    assert not is_grave and "stopped" in text


@pytest.mark.parametrize("index", [5, 40, 79])
def test_a_step_far_from_all_others_is_suspect_though_nobody_saw_a_stop(index: int) -> None:
    spans_s = [0.1] * 80
    spans_s[index] = 0.95
    ((is_grave, text),) = found(run_of(spans_s))
    assert not is_grave and f"step {index + 1} took 950 ms, others 100 ms" in text
    assert not found(run_of(spans_s), is_steady=False)


def test_time_between_two_steps_counts() -> None:
    events = run_of([0.1] * 80)
    late = [{**e, "t_s": e["t_s"] + 0.9} if e["event"] == "step" and e["step"] > 40 else e for e in events]
    ((_, text),) = found(late)
    assert "step 41 took 1 s" in text


@pytest.mark.parametrize("change", [{"event": "change"}, {"event": "transform"}, {"event": "left"}])
def test_a_change_explains_a_long_step(change: Event) -> None:
    spans_s = [0.1] * 80
    spans_s[40] = 2.0
    assert found(run_of(spans_s))
    assert not found([*run_of(spans_s), {**change, "t_s": 4.05}])


def test_steps_that_exchange_more_are_a_kind_of_their_own() -> None:
    """As of local_sgd over a long link, or of a hierarchy that seldom crosses it."""
    spans_s, sent = [0.1] * 80, [1000] * 80
    for index in (15, 31, 47, 63, 79):
        spans_s[index], sent[index] = 1.0, 4000
    assert not found(run_of(spans_s, payload_bytes=sent))


def test_a_few_long_steps_of_many_are_far_and_a_tenth_is_a_kind() -> None:
    spans_s = [0.1] * 100
    for index in range(10, 100, 8):
        spans_s[index] = 1.0
    assert not found(run_of(spans_s))
    for index in range(34, 100, 8):
        spans_s[index] = 0.1
    assert found(run_of(spans_s))


def test_the_first_step_may_be_long() -> None:
    assert not found(run_of([3.0] + [0.1] * 50))


@pytest.mark.parametrize(
    ("words", "is_steady"),
    [
        ([], True),
        (["strategy=diloco"], True),
        (["strategy=diloco", "strategy.overlap_steps=2"], False),
        (["strategy=spd_kfac"], True),
        (["strategy=dkfac", "strategy.inverse_every=10"], False),
        (["strategy=federated", "workload=speakers"], False),
        (["topo=lossy"], False),
    ],
)
def test_steps_that_a_strategy_makes_unlike_are_not_held_against_each_other(words: list[str], is_steady: bool) -> None:
    assert _is_steady(compose(words)) == is_steady
