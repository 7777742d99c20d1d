"""Steps are left out for what others took, never for what the run did to itself, and never more than a tenth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.record.spoiled_steps import MAX_SHARE, NOTHING, LeftOut, left_out

Event = dict[str, Any]
FOREIGN, STEAL = {"foreign_cpu_s": 0.5}, {"steal_s": 0.4}
UNKNOWN: Event = {"foreign_cpu_s": None}


def host(end_s: float, **changes: Any) -> Event:
    """One second that ended at `end_s`, calm but for `changes`."""
    calm = {"cpu_idle_ratio": 0.5, "steal_s": 0.0, "interval_s": 1.0}
    seen = {"foreign_cpu_s": 0.02, "stopped_processes": 0, "cpu_count": 2}
    return {"event": "host", "t_s": end_s, **calm, **seen, **changes}


def step(number: int, end_s: float, step_s: float, rank: int = 0) -> Event:
    return {"event": "step", "t_s": end_s, "step": number, "rank": rank, "step_s": step_s}


def record(
    disturbed: Mapping[int, Event], *others: Event, seconds: int = 30, per_second: int = 2, ranks: int = 2
) -> list[Event]:
    """Steps of equal length; `disturbed` says what a second (0 is the first) has that a calm one has not."""
    length_s = 1 / per_second
    steps = [
        step(number + 1, (number + 1) * length_s, length_s, rank)
        for number in range(seconds * per_second)
        for rank in range(ranks)
    ]
    hosts = [host(number + 1.0, **disturbed.get(number, {})) for number in range(seconds)]
    return sorted([*steps, *hosts, *others], key=lambda event: (event["t_s"], event["event"] == "host"))


def test_a_calm_run_leaves_nothing_out() -> None:
    assert left_out(record({})) == NOTHING


@pytest.mark.parametrize(
    ("what", "told"),
    [(FOREIGN, "a process outside of the run took up to 0.50 of a core"), (STEAL, "another machine took up to 0.40")],
)
def test_a_burst_takes_the_steps_of_its_seconds_and_says_who_it_was(what: Event, told: str) -> None:
    found = left_out(record({4: what, 5: what}))
    assert found.steps == {9, 10, 11, 12}
    (reason,) = found.reasons
    assert told in reason and "2 s by the wall, first at 4 s" in reason
    assert [found.covers(t_s) for t_s in (4.0, 4.1, 5.0, 6.0, 6.1)] == [False, True, True, True, False]


def test_both_causes_are_named() -> None:
    foreign, steal = left_out(record({4: FOREIGN, 9: STEAL})).reasons
    assert "outside of the run" in foreign and "steal" in steal


@pytest.mark.parametrize("what", [{"foreign_cpu_s": 0.19}, {"steal_s": 0.09}])
def test_what_is_borne_spoils_nothing(what: Event) -> None:
    assert left_out(record({4: what})) == NOTHING


def test_no_more_than_a_tenth_is_left_out_and_the_most_disturbed_first() -> None:
    long = dict.fromkeys(range(5, 25), FOREIGN) | {20: {"foreign_cpu_s": 0.9}}
    found = left_out(record(long))
    assert found.steps == {41, 42, 11, 12, 13, 14}
    assert "40 steps were disturbed" in found.reasons[-1]


@pytest.mark.parametrize("seconds", [1, 5, 9])
def test_of_less_than_ten_steps_none_is_left_out(seconds: int) -> None:
    assert not left_out(record({0: FOREIGN}, seconds=seconds, per_second=1)).steps


def test_a_long_step_is_spoiled_by_one_of_its_seconds_and_takes_its_calm_ones_along() -> None:
    """As of local_sgd, whose steps are few between two exchanges."""
    events = [step(number, 3.0 * number, 3.0) for number in range(1, 11)]
    events += [host(number + 1.0, **(FOREIGN if number == 13 else {})) for number in range(30)]
    found = left_out(events)
    assert found.steps == {5} and found.seconds == ((12.0, 13.0), (13.0, 14.0), (14.0, 15.0))


def test_a_second_of_which_a_step_remains_is_not_covered() -> None:
    found = left_out(record(dict.fromkeys(range(10, 14), FOREIGN)))
    assert len(found.steps) == 6
    assert found.covers(12.5) and not found.covers(13.5)


def test_a_step_counts_from_its_first_rank_to_its_last() -> None:
    events = record({10: FOREIGN}, seconds=30, per_second=1, ranks=1)
    events += [step(number, number + 0.25, 1.0, rank=1) for number in range(1, 31)]
    assert left_out(events).steps == {10, 11}


def test_a_run_that_starves_itself_is_not_excused() -> None:
    """Nobody else took anything."""
    assert left_out(record({number: {"cpu_idle_ratio": 0.0} for number in range(30)})) == NOTHING


def test_a_run_that_would_have_starved_all_the_same_is_not_excused() -> None:
    """On 16 cores, 0.3 of one is not what kept all of them busy; on two it is."""
    starved = {"cpu_idle_ratio": 0.0, "foreign_cpu_s": 0.3}
    assert left_out(record({4: {**starved, "cpu_count": 16}})) == NOTHING
    assert left_out(record({4: {**starved, "cpu_count": 2}})).steps == {9, 10}


def test_a_step_that_reaches_into_a_second_of_own_starvation_stays() -> None:
    events = [step(number, 2.0 * number, 2.0) for number in range(1, 16)]
    told = {4: FOREIGN, 5: {"cpu_idle_ratio": 0.01}}
    assert left_out([*events, *(host(number + 1.0, **told.get(number, {})) for number in range(30))]) == NOTHING


@pytest.mark.parametrize(
    "outage",
    [
        {"event": "change", "what": "crash", "node": "a", "t_s": 4.5},
        {"event": "change", "what": "leave", "node": "a", "t_s": 4.5},
        {"event": "change", "what": "join", "node": "a", "t_s": 4.5},
        {"event": "change", "what": "down", "name": "x", "t_s": 2.5},
        {"event": "node", "node": "a", "throttled_s": 0.01, "t_s": 4.5},
        {"event": "left", "rank": 7, "node": "h", "t_s": 4.5},
    ],
    ids=lambda event: event.get("what", event["event"]),
)
def test_a_worker_or_link_that_was_stopped_is_no_excuse(outage: Event) -> None:
    assert left_out(record({4: FOREIGN}, outage)) == NOTHING


def test_a_link_that_is_up_again_is_no_hindrance() -> None:
    ways = [{"event": "change", "what": what, "name": "x", "t_s": t_s} for what, t_s in (("down", 1.5), ("up", 2.5))]
    assert left_out(record({4: FOREIGN}, *ways)).steps == {9, 10}


@pytest.mark.parametrize("told", [{3: {"stopped_processes": 1}, 4: FOREIGN}, {4: {**FOREIGN, "stopped_processes": 1}}])
def test_a_worker_that_a_signal_stopped_is_no_excuse(told: dict[int, Event]) -> None:
    assert left_out(record(told)) == NOTHING


def test_a_second_of_which_nobody_knows_who_took_it_is_no_excuse() -> None:
    assert left_out(record({4: {**STEAL, **UNKNOWN}})) == NOTHING


def test_records_of_before_leave_nothing_out() -> None:
    events = record({4: STEAL})
    for event in events:
        for key in ("foreign_cpu_s", "stopped_processes", "cpu_count"):
            event.pop(key, None)
    assert left_out(events) == NOTHING


def test_a_broken_event_spoils_nothing() -> None:
    broken: list[Event] = [{"event": "host"}, {"event": "step", "step": 1}, {"event": "change"}]
    assert left_out([*broken, *record({4: FOREIGN})]).steps == {9, 10}


@given(
    seconds=st.lists(
        st.fixed_dictionaries(
            {
                "foreign_cpu_s": st.none() | st.floats(0, 2),
                "steal_s": st.floats(0, 1),
                "cpu_idle_ratio": st.floats(0, 1),
                "stopped_processes": st.integers(0, 1),
            }
        ),
        max_size=30,
    ),
    lengths_s=st.lists(st.floats(0.05, 4), max_size=40),
)
def test_never_more_than_a_tenth_and_never_a_step_that_nobody_else_disturbed(
    seconds: list[Event], lengths_s: list[float]
) -> None:
    events, ends_s = [host(number + 1.0, **told) for number, told in enumerate(seconds)], [0.0]
    for number, step_s in enumerate(lengths_s, 1):
        ends_s.append(ends_s[-1] + step_s)
        events.append(step(number, ends_s[-1], step_s))
    found: LeftOut = left_out(events)
    assert len(found.steps) <= MAX_SHARE * len(lengths_s)
    for number in found.steps:
        touched = [t for end, t in enumerate(seconds, 1) if end > ends_s[number - 1] and end - 1 < ends_s[number]]
        assert any((told["foreign_cpu_s"] or 0) > 0.2 or told["steal_s"] > 0.1 for told in touched)
        assert all(told["foreign_cpu_s"] is not None and not told["stopped_processes"] for told in touched)
    for begin_s, end_s in found.seconds:
        inside = [n for n in range(1, len(ends_s)) if ends_s[n] > begin_s and ends_s[n - 1] < end_s]
        assert set(inside) <= found.steps
