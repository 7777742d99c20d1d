from __future__ import annotations

import threading
import time

import pytest

from testbed.worker.clock import PhaseClock
from testbed.worker.comm import Communicator
from testbed.worker.stopwatch import Stopwatch
from testbed.worker.times import ComputeTimes


def _compute(cpu_s: float) -> None:
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        pass


def test_an_inner_phase_suspends_the_outer_one() -> None:
    clock = PhaseClock()
    with clock.phase("backward"):
        time.sleep(0.02)
        with clock.phase("compress"):
            time.sleep(0.4)
    seconds = clock.take()
    assert 0.02 <= seconds["backward"] < 0.4
    assert seconds["compress"] >= 0.4
    assert clock.take() == {}


def test_an_exception_leaves_the_phase() -> None:
    clock = PhaseClock()
    with pytest.raises(RuntimeError), clock.phase("forward"):
        raise RuntimeError
    time.sleep(0.3)
    assert clock.take()["forward"] < 0.3


def test_under_dilation_computing_takes_its_cpu_time_and_waiting_its_share() -> None:
    clock = PhaseClock(dilation=4.0)
    started_s = time.monotonic()
    with clock.phase("forward"):
        _compute(0.02)
    assert time.monotonic() - started_s >= 0.08
    with clock.phase("exposed_communication"):
        time.sleep(0.4)
    seconds = clock.take()
    assert seconds["forward"] >= 0.02
    assert 0.1 <= seconds["exposed_communication"] < 0.35


def test_a_stopwatch_counts_overlapping_intervals_once() -> None:
    watch = Stopwatch()
    first = watch.start()
    time.sleep(0.02)
    second = watch.start()
    first()
    first()
    time.sleep(0.02)
    second()
    time.sleep(0.4)
    assert 0.04 <= watch.take_s() < 0.4
    assert watch.take_s() == 0


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("total", [0, 1, 10, 26195184])
def test_parts_of_a_total_are_whole_and_add_up(world_size: int, total: int) -> None:
    ranks = [Communicator(rank, world_size, timeout_s=1) for rank in range(world_size)]
    for comm in ranks:
        comm.count(total)
    parts = [comm.payload_bytes for comm in ranks]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1


def test_a_followed_interval_ends_by_itself_and_frees_what_it_held() -> None:
    watch, gates = Stopwatch(), [threading.Event() for _ in range(3)]

    def fail() -> None:
        gates[1].wait()
        raise RuntimeError("timed out")

    ends = [watch.follow(wait) for wait in (gates[0].wait, fail, gates[2].wait)]
    gates[2].set()  # out of order
    time.sleep(0.02)
    gates[1].set()
    gates[0].set()
    deadline_s = time.monotonic() + 10
    while watch._active and time.monotonic() < deadline_s:
        time.sleep(0.001)
    time.sleep(0.4)
    assert 0.02 <= watch.take_s() < 0.4
    for end in ends:
        end()
    assert watch.take_s() == 0


def test_an_interval_that_is_still_open_counts_until_now() -> None:
    watch = Stopwatch()
    end = watch.start()
    time.sleep(0.02)
    assert watch.take_s() >= 0.02
    time.sleep(0.02)
    end()
    assert 0.02 <= watch.take_s() < 0.4


class _Times(ComputeTimes):
    """A device of which only pacing is asked."""

    @property
    def forward_s(self) -> float:
        return 1.0


def test_a_phase_lasts_what_its_device_takes_times_the_dilation() -> None:
    clock = PhaseClock(2.0, _Times())
    clock.restart(time.monotonic())
    started_s = time.monotonic()
    with clock.phase("forward", 0.05):
        pass
    with clock.phase("backward", 0.1):
        clock.spend(0.04)
        assert time.monotonic() - started_s >= 0.18
        with clock.phase("compress", 0.01):
            pass
        assert time.monotonic() - started_s >= 0.2
    assert time.monotonic() - started_s >= 0.32
    seconds = clock.take()
    assert seconds["forward"] == pytest.approx(0.05, abs=0.02)
    assert seconds["backward"] == pytest.approx(0.1, abs=0.02)
    assert seconds["compress"] == pytest.approx(0.01, abs=0.02)


def test_a_phase_spends_no_more_than_it_has() -> None:
    clock = PhaseClock(1.0, _Times())
    clock.restart(time.monotonic())
    started_s = time.monotonic()
    with clock.phase("backward", 0.1):
        clock.spend(0.06)
        clock.spend(5.0)
    assert 0.1 <= time.monotonic() - started_s < 2


def test_work_that_was_late_is_followed_by_no_sleep_until_it_is_made_good() -> None:
    clock = PhaseClock(1.0, _Times())
    started_s = time.monotonic()
    clock.restart(started_s)
    with clock.phase("forward", 0.1):
        _compute(0.3)
    clock.mark()
    late_s = time.monotonic() - started_s - 0.1
    with clock.phase("backward", late_s + 0.1):
        pass
    # only the last 0.1 of these were slept: the rest of them was over by then
    assert 0.2 <= time.monotonic() - started_s - late_s < 0.2 + late_s
    clock.mark()  # in time again; the stretch stays as late as it was at its latest
    clock.end_stretch()
    assert clock.take_late_s() == pytest.approx(late_s, abs=0.05)
    assert clock.take_late_s() == 0.0


def test_what_nobody_saw_is_not_late() -> None:
    clock = PhaseClock(1.0, _Times())
    clock.restart(time.monotonic())
    with clock.phase("forward", 0.01):
        _compute(0.1)
    with clock.phase("backward", 0.5):
        pass
    clock.mark()
    clock.end_stretch()
    assert clock.take_late_s() < 0.05


def test_after_a_wait_time_goes_on_from_what_was_awaited() -> None:
    clock = PhaseClock(1.0, _Times())
    clock.restart(time.monotonic())
    with clock.phase("exposed_communication"):
        time.sleep(0.2)
    started_s = time.monotonic()
    with clock.phase("forward", 0.1):
        pass
    assert time.monotonic() - started_s >= 0.09  # and does not make good what the wait took


def test_cpu_seconds_are_told_beside_the_emulated_ones() -> None:
    clock = PhaseClock(1.0, _Times())
    with clock.phase("forward", 0.2):
        _compute(0.05)
    assert clock.take_cpu_s()["forward"] == pytest.approx(0.05, abs=0.03)
