"""A host's time passes by waiting, times the dilation, before a collective and around a segment."""

from __future__ import annotations

import pytest

from testbed.core.device.host_costs import HostCosts
from testbed.worker.communication import host as module
from testbed.worker.communication.host import NO_HOST, Host
from tests.unit.fake_time import FakeTime


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    time = FakeTime()
    monkeypatch.setattr(module, "time", time)
    return time


@pytest.mark.parametrize(("share", "waited_s"), [(1.0, 0.28), (0.5, 0.14)])
def test_a_collective_waits_and_half_of_one_half_as_long(clock: FakeTime, share: float, waited_s: float) -> None:
    host, began_s = Host(HostCosts(collective_s=0.007), lambda: 40.0), clock.monotonic()
    assert host.starting(lambda: "done", share)() == "done"
    assert clock.monotonic() - began_s == pytest.approx(waited_s)


def test_what_is_done_with_a_segment_is_part_of_the_host_s_time(clock: FakeTime) -> None:
    host, began_s = Host(HostCosts(segment_s=0.001), lambda: 40.0), clock.monotonic()
    for work_s, ends_s in ((0.03, 0.04), (0.05, 0.09)):
        with host.segment():
            clock.work(work_s)
        assert clock.monotonic() - began_s == pytest.approx(ends_s)


def test_no_host_waits_for_nothing(clock: FakeTime) -> None:
    began_s, work = clock.monotonic(), list
    assert NO_HOST.starting(work) is work
    with NO_HOST.segment():
        pass
    assert clock.monotonic() == began_s and NO_HOST.segment_wall_s == 0
