"""Waiting for other ranks is booked by whoever waits, once, as exposed communication."""

from __future__ import annotations

import pytest
import torch

from testbed.core.device.profile import Profile
from testbed.worker.communication.collectives.group import Group
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import CollectiveError, Pending
from testbed.worker.device import clock as clock_module
from testbed.worker.device import stopwatch as stopwatch_module
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.compute_times import ComputeTimes
from tests.unit.fake_time import FakeTime


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    monkeypatch.setattr(clock_module, "time", made)
    monkeypatch.setattr(stopwatch_module, "time", made)
    monkeypatch.setattr(clock_module.codec_process, "cpu_s", lambda: 0.0)
    return made


class Slow:
    """A collective that another rank keeps waiting for `seconds`, or that fails then."""

    def __init__(self, time: FakeTime, seconds: float, *, fails: bool = False) -> None:
        self._time, self._seconds, self._fails = time, seconds, fails

    def wait(self) -> None:
        self._time.sleep(self._seconds)
        if self._fails:
            raise RuntimeError("Connection closed by peer")


def _pending(comm: Communicator, work: Slow) -> Pending:
    return Pending(comm, "all_reduce of 4 bytes", work, lambda: [torch.ones(1)], comm.stopwatch.start())


@pytest.fixture
def comm() -> Communicator:
    made = Communicator(rank=0, world_size=2, timeout_s=1.0)
    made.clock = PhaseClock()
    return made


def test_a_wait_inside_any_phase_is_exposed_communication(comm: Communicator, time: FakeTime) -> None:
    assert comm.clock is not None
    with comm.clock.phase("optimizer"):
        time.work(0.1)
        assert torch.equal(_pending(comm, Slow(time, 0.3)).wait()[0], torch.ones(1))
        time.work(0.2)
    assert comm.clock.take() == pytest.approx({"optimizer": 0.3, WAITING: 0.3})
    assert comm.stopwatch.take_s() == pytest.approx(0.3)


def test_a_wait_that_is_wrapped_all_the_same_is_booked_once(comm: Communicator, time: FakeTime) -> None:
    assert comm.clock is not None
    with comm.clock.phase("optimizer"), comm.clock.phase(WAITING):
        _pending(comm, Slow(time, 0.3)).wait()
    assert comm.clock.take() == pytest.approx({"optimizer": 0.0, WAITING: 0.3})


def test_the_phases_of_a_paced_step_add_up_to_it(comm: Communicator, time: FakeTime) -> None:
    """What was waited for is no work that came too late."""
    profile = Profile(
        workload="w", compressor="c", batch_size=1, layers=(), forward_s=0.2, backward_s=0.3, optimizer_s=0.1
    )
    clock = comm.clock = PhaseClock(2.0, ComputeTimes(profile))
    began_s = time.monotonic()
    clock.restart(began_s)
    with clock.phase("optimizer", clock.times.other_s):
        with clock.phase("forward", clock.times.forward_s):
            time.work(0.05)
        _pending(comm, Slow(time, 1.0)).wait()
        with clock.phase("backward", clock.times.backward_s):
            time.work(0.05)
    phases = clock.take()
    assert phases == pytest.approx({"forward": 0.2, WAITING: 0.5, "backward": 0.3, "optimizer": 0.0})
    assert sum(phases.values()) == pytest.approx((time.monotonic() - began_s) / 2.0)
    assert clock.take_late_s() == 0.0


def test_a_send_that_comes_too_late_is_noticed_without_a_word_of_the_sender(comm: Communicator, time: FakeTime) -> None:
    profile = Profile(
        workload="w", compressor="c", batch_size=1, layers=(), forward_s=0.2, backward_s=0.3, optimizer_s=0.1
    )
    clock = comm.clock = PhaseClock(1.0, ComputeTimes(profile))
    clock.restart(time.monotonic())
    with clock.phase("forward", clock.times.forward_s):
        time.work(0.25)
    comm.submit("a collective", lambda peers: []).wait()
    clock.end_stretch()
    assert clock.take_late_s() == pytest.approx(0.05)


def test_a_group_waits_on_the_clock_of_its_parent(comm: Communicator, time: FakeTime) -> None:
    assert comm.clock is not None
    group = Group(comm, [0, 1], 0, channel=1)
    with comm.clock.phase("optimizer"):
        _pending(group, Slow(time, 0.3)).wait()
    assert comm.clock.take()[WAITING] == pytest.approx(0.3)


def test_where_nobody_reads_a_clock_a_wait_is_a_wait(time: FakeTime) -> None:
    began_s = time.monotonic()
    _pending(Communicator(rank=0, world_size=2, timeout_s=1.0), Slow(time, 0.3)).wait()
    assert time.monotonic() - began_s == pytest.approx(0.3)


def test_a_wait_that_fails_leaves_its_phase(comm: Communicator, time: FakeTime) -> None:
    assert comm.clock is not None
    with comm.clock.phase("optimizer"):
        with pytest.raises(CollectiveError, match="all_reduce of 4 bytes failed before the first step"):
            _pending(comm, Slow(time, 0.3, fails=True)).wait()
        time.work(0.1)
    assert comm.clock.take() == pytest.approx({"optimizer": 0.1, WAITING: 0.3})
