"""The schedule on a clock of its own: order, times under dilation, what is recorded, what fails."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Node, Topology, symmetric
from testbed.orchestrator.config.events.profiles import Profiles
from testbed.orchestrator.run.schedule import Schedule
from tests.waiting import HANG_S, joined, wait_until

LINK = symmetric("us-eu", "us", "eu", wan=True, rtt_s=0.08, rate_bit_s=100e6, source="assumed: test")
OTHER = symmetric("us-asia", "us", "asia", wan=True, rtt_s=0.2, rate_bit_s=50e6, source="assumed: test")
TOPOLOGY = Topology(
    name="test", regions=("us", "eu", "asia"), nodes=(Node(name="us-0", region="us"),),
    links=(LINK, OTHER, symmetric("access", "us-0", "us", wan=False, rtt_s=0, rate_bit_s=1e9, source="assumed: test")),
)  # fmt: skip
T0_S = 1000.0


class Clock:
    """Goes on only when waited on, or when something takes its time."""

    def __init__(self) -> None:
        self.now_s = T0_S - 0.2

    def now(self) -> float:
        return self.now_s

    def wait(self, _stopping: threading.Event, seconds: float) -> None:
        self.now_s += seconds


class Fake:
    """Network and workers; each call takes `call_s` and is kept with the time it began at."""

    def __init__(self, clock: Clock, call_s: float = 0.0, broken: str = "") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._clock, self._call_s, self._broken = clock, call_s, broken

    def _call(self, *what: Any) -> None:
        if self._broken == what[0]:
            raise RunError("kernel reports no rate limit")
        self.calls.append((round(self._clock.now_s - T0_S, 6), *what))
        self._clock.now_s += self._call_s

    def change(self, link: str, source: str, profile: LinkProfile) -> None:
        self._call("change", link, source, profile)

    def set_down(self, link: str, down: bool) -> None:
        self._call("set_down", link, down)

    def crash(self, node: str) -> None:
        self._call("crash", node)

    def leave(self, node: str) -> None:
        self._call("leave", node)

    def join(self, node: str) -> None:
        raise OSError("no room")


def play(*changes: Change, dilation: float = 1.0, **how: Any) -> tuple[Fake, list[dict[str, Any]], Schedule]:
    clock = Clock()
    fake = Fake(clock, **how)
    events: list[dict[str, Any]] = []
    schedule = Schedule(changes, TOPOLOGY, dilation, fake, fake, events.append, now=clock.now, wait=clock.wait)
    schedule.start(T0_S)
    assert schedule._thread is not None
    joined(schedule._thread)
    schedule.stop()
    return fake, events, schedule


def rate(t_s: float, rate_bit_s: float, source: str | None = None) -> Change:
    return Change(t_s=t_s, kind="set", link="us-eu", source=source, values={"rate_bit_s": rate_bit_s}, cause="mine")


def test_changes_come_at_their_time_in_order() -> None:
    fake, events, schedule = play(
        Change(t_s=15, kind="up", link="us-eu"),
        Change(t_s=10, kind="down", link="us-eu"),
        Change(t_s=20, kind="crash", node="us-0"),
        Change(t_s=18, kind="leave", node="us-0"),
    )
    assert fake.calls == [
        (10, "set_down", "us-eu", True),
        (15, "set_down", "us-eu", False),
        (18, "leave", "us-0"),
        (20, "crash", "us-0"),
    ]
    assert [(e["what"], e["name"], e["node"]) for e in events] == [
        ("down", "us-eu", None),
        ("up", "us-eu", None),
        ("leave", None, "us-0"),
        ("crash", None, "us-0"),
    ]
    assert (schedule.pending, schedule.failure) == (0, None)


def test_profiles_are_made_of_the_topologys_and_of_all_that_was_set() -> None:
    delay = Change(t_s=2, kind="set", link="us-eu", source="eu", values={"delay_s": 0.1}, cause="slow")
    fake, _, _ = play(rate(1, 20e6), delay, rate(3, 30e6, "us"))
    found = [(source, profile.rate_bit_s, profile.delay_s) for _, _, _, source, profile in fake.calls]
    assert found == [("us", 20e6, 0.04), ("eu", 20e6, 0.04), ("eu", 20e6, 0.1), ("us", 30e6, 0.04)]
    assert {call[2] for call in fake.calls} == {"us-eu"}


def test_dilation_delays_the_change_and_slows_what_is_set() -> None:
    both = Change(t_s=2, kind="set", link="us-eu", source="us", values={"rate_bit_s": 20e6, "delay_s": 0.05})
    fake, (event,), _ = play(both, dilation=4, call_s=0.2)
    ((at_s, _, _, _, profile),) = fake.calls
    assert at_s == 8
    assert (profile.rate_bit_s, profile.delay_s) == (5e6, 0.2)
    assert event["after"] == {"rate_bit_s": 20e6, "delay_s": 0.05}  # the record is in emulated terms
    assert event["t_s"] == pytest.approx(2.05)


def test_the_record_says_what_took_effect_when_and_how_late() -> None:
    _, events, _ = play(rate(1, 20e6), rate(1, 30e6), call_s=0.03)
    assert events[0] == {
        "event": "change",
        "t_s": pytest.approx(1.03),
        "what": "set",
        "name": "us-eu",
        "from": "us",
        "to": "eu",
        "node": None,
        "asked_s": 1,
        "late_s": pytest.approx(0.03),
        "before": {"rate_bit_s": 100e6},
        "after": {"rate_bit_s": 20e6},
        "cause": "mine",
    }
    assert [(e["from"], e["to"]) for e in events] == [("us", "eu"), ("eu", "us")] * 2
    assert [e["late_s"] for e in events] == pytest.approx([0.03, 0.06, 0.09, 0.12])
    assert events[3]["before"] == {"rate_bit_s": 20e6}


def test_a_change_that_fails_is_kept_and_ends_the_schedule() -> None:
    fake, events, schedule = play(
        Change(t_s=1, kind="down", link="us-eu"), rate(2, 20e6), rate(3, 9e6), broken="change"
    )
    assert isinstance(schedule.failure, RunError)
    assert str(schedule.failure) == "set us-eu at 2 s (mine): kernel reports no rate limit"
    assert [call[1] for call in fake.calls] == ["set_down"]
    assert ([e["what"] for e in events], schedule.pending) == (["down"], 2)


def test_links_that_are_down_are_told_with_their_cause() -> None:
    def down(t_s: float, link: str) -> Change:
        return Change(t_s=t_s, kind="down", link=link, cause="partition us | eu")

    _, _, schedule = play(down(1, "us-eu"), down(2.5, "us-asia"), Change(t_s=3, kind="up", link="us-eu"))
    assert schedule.down_links == ["link us-asia is down since 2.5 s (partition us | eu)"]


def test_any_error_is_a_failure() -> None:
    _, _, schedule = play(Change(t_s=1, kind="join", node="us-0", cause="join us-0"))
    assert str(schedule.failure) == "join us-0 at 1 s (join us-0): OSError: no room"


def test_stop_leaves_what_has_not_come() -> None:
    clock = Clock()
    fake = Fake(clock)
    events: list[dict[str, Any]] = []
    changes = (Change(t_s=0.05, kind="down", link="us-eu"), Change(t_s=3600, kind="up", link="us-eu"))
    schedule = Schedule(changes, TOPOLOGY, 1.0, fake, fake, events.append)
    schedule.stop()  # before it began
    assert schedule.pending == 2
    schedule = Schedule(changes, TOPOLOGY, 1.0, fake, fake, events.append)
    schedule.start(time.monotonic())
    wait_until(lambda: bool(events), "the first change of a schedule")
    started_s = time.monotonic()
    schedule.stop()
    assert time.monotonic() - started_s < HANG_S
    assert (len(events), schedule.pending, schedule.failure) == (1, 1, None)
    assert 0 <= events[0]["late_s"] < HANG_S


def test_profiles_tell_before_and_after_of_each_direction() -> None:
    profiles = Profiles(TOPOLOGY)
    (first, second) = profiles.apply(rate(0, 1e6))
    assert [row[:2] for row in (first, second)] == [("us-eu", "us"), ("us-eu", "eu")]
    assert (first[2].rate_bit_s, first[3].rate_bit_s) == (100e6, 1e6)
    ((_, source, before, _),) = profiles.apply(rate(0, 2e6, "eu"))
    assert (source, before.rate_bit_s) == ("eu", 1e6)
