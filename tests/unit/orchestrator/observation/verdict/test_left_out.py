"""The verdict judges the steps that remain: a burst of others' load is no reason, one of the run's own is as grave."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.observation.verdict.judge import Judge
from topologies import two_regions

Event = dict[str, Any]
LINK = {"name": "oregon-virginia", "from": "oregon", "to": "virginia"}
SECONDS, PER_SECOND = 40, 2
BURST = (20, 21)
"""Seconds, counted from 0."""
CALM: Event = {"cpu_idle_ratio": 0.5, "steal_s": 0.0, "foreign_cpu_s": 0.02, "late_s": 0.0, "late_p99_s": 1e-4}
FOREIGN: Event = {"cpu_idle_ratio": 0.0, "foreign_cpu_s": 0.9, "late_s": 0.4, "late_p99_s": 1.0}
STOLEN: Event = {"steal_s": 1.9, "late_s": 0.4, "late_p99_s": 1.0}
OWN: Event = {"cpu_idle_ratio": 0.0, "late_s": 0.4, "late_p99_s": 1.0}
WAITED = 0.99
"""Share of a second of the burst in which somebody waited for a core."""


def second(number: int, *, is_paced: bool, pressure_s: float, said: Event) -> list[Event]:
    """Steps of one second, then what the collector saw of it."""
    events: list[Event] = []
    for half in range(PER_SECOND):
        t_s, step_s = number + (half + 1) / PER_SECOND, 1 / PER_SECOND
        late = {"late_s": said["late_s"] if is_paced else None, "queued_s": said["late_s"]}
        step = {"event": "step", "t_s": t_s, "step": PER_SECOND * number + half + 1, "rank": 0, "step_s": step_s}
        events.append({**step, **late, "payload_bytes": 0})
    t_s = number + 1.0
    line = {"packets": 1000, "drops": 0, "queue_drops": 0, "interval_s": 1.0, "late_p99_s": said["late_p99_s"]}
    events.append({"t_s": t_s, "event": "delay_line", **LINK, **line})
    ways = {"forward_s": 0.0335, "backward_s": 0.0335}
    events.append({"t_s": t_s, "event": "rtt", "name": LINK["name"], "rtt_s": 0.067, **ways})
    host = {key: said[key] for key in ("cpu_idle_ratio", "steal_s", "foreign_cpu_s") if key in said}
    seen = {"interval_s": 1.0, "sampler_late_s": 0.0, "stopped_processes": 0, "cpu_count": 2}
    return [*events, {"t_s": t_s, "event": "host", "cpu_pressure_s": pressure_s, **seen, **host}]


def judged(burst: Event, *, is_paced: bool = True, is_old: bool = False, seconds: tuple[int, ...] = BURST) -> Judge:
    part = Part("x", "x.X")
    topology = two_regions.build(rate="100 Mbit/s", rtt="67 ms")
    judge = Judge(RunSpec(topology=topology, workload=part, strategy=part, compressor=part, device=part, steps=3))
    pressure_s = 0.0
    for number in range(SECONDS):
        is_burst = number in seconds
        pressure_s += WAITED if is_burst else 0.1
        for event in second(number, is_paced=is_paced, pressure_s=pressure_s, said=CALM | (burst if is_burst else {})):
            if is_old:
                event.pop("foreign_cpu_s", None)
            judge.add(event)
    judge.add({"event": "schedule", "t_s": SECONDS, "what": "end"})
    return judge


@pytest.mark.parametrize("is_paced", [True, False])
@pytest.mark.parametrize("burst", [FOREIGN, STOLEN])
def test_a_burst_of_others_is_left_out_of_every_rule(burst: Event, is_paced: bool) -> None:
    judge = judged(burst, is_paced=is_paced)
    assert judge.left_out().steps == {41, 42, 43, 44}
    assert judge.verdict() == ("valid", [])
    assert judge.needed_slowdown == 1


def test_the_same_burst_is_a_reason_in_records_that_do_not_know_of_others() -> None:
    judge = judged(STOLEN, is_old=True)
    word, reasons = judge.verdict()
    assert not judge.left_out().steps and word == "suspect"
    assert any("late by 4.0%" in reason for reason in reasons)


@pytest.mark.parametrize("is_paced", [True, False])
def test_the_same_burst_is_a_reason_if_nobody_else_took_the_cores(is_paced: bool) -> None:
    judge = judged(OWN, is_paced=is_paced, seconds=(*BURST, 22, 23, 24))
    word, reasons = judge.verdict()
    assert not judge.left_out().steps and word != "valid"
    assert any("late by" in reason if is_paced else "cores were short" in reason for reason in reasons)


def test_what_is_beyond_a_tenth_is_judged_as_it_is() -> None:
    """Ten seconds of forty: four go, six remain of thirty-six."""
    judge = judged(FOREIGN, seconds=tuple(range(20, 30)))
    word, reasons = judge.verdict()
    assert len(judge.left_out().steps) == 8 and word == "invalid"
    assert any(f"late by {12 * 0.4 / (72 * 0.5):.1%}" in reason for reason in reasons)
    assert any("delay line too late in 17% of the seconds" in reason for reason in reasons)


def test_steal_in_other_seconds_still_counts() -> None:
    judge = judged(STOLEN | {"late_s": 0.0, "late_p99_s": 1e-4}, seconds=tuple(range(10, 26)))
    word, reasons = judge.verdict()
    assert word == "invalid"
    assert reasons == [f"another machine took {12 * 1.9 / 36:.1%} of a core (steal)"]
