"""Phases last what their device takes, and intervals that overlap are counted once: in a time that is told."""

from __future__ import annotations

import threading

import pytest

from testbed.worker.communication.communicator import Communicator
from testbed.worker.device import clock as clock_module
from testbed.worker.device import stopwatch as stopwatch_module
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.device.stopwatch import Stopwatch
from tests.unit.fake_time import FakeTime

HANG_S = 100.0
"""After which a thread that has not done its work has hung."""


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    monkeypatch.setattr(clock_module, "time", made)
    monkeypatch.setattr(stopwatch_module, "time", made)
    monkeypatch.setattr(clock_module.codec_process, "cpu_s", lambda: 0.0)  # of a helper that other tests have started
    return made


def test_an_inner_phase_suspends_the_outer_one(time: FakeTime) -> None:
    clock = PhaseClock()
    with clock.phase("backward"):
        time.sleep(0.02)
        with clock.phase("compress"):
            time.sleep(0.4)
        time.sleep(0.01)
    assert clock.take() == pytest.approx({"backward": 0.03, "compress": 0.4})
    assert clock.take() == {}


def test_an_exception_leaves_the_phase(time: FakeTime) -> None:
    clock = PhaseClock()
    with pytest.raises(RuntimeError), clock.phase("forward"):
        raise RuntimeError
    time.sleep(0.3)
    assert clock.take() == {"forward": 0.0}


def test_under_dilation_computing_takes_its_cpu_time_and_waiting_its_share(time: FakeTime) -> None:
    clock = PhaseClock(dilation=4.0)
    started_s = time.monotonic()
    with clock.phase("forward"):
        time.work(0.02, wall_s=0.05)  # preempted for 30 ms
    assert time.monotonic() - started_s == pytest.approx(0.08)
    with clock.phase("exposed_communication"):
        time.sleep(0.4)
    assert clock.take() == pytest.approx({"forward": 0.02, "exposed_communication": 0.1})


def test_waiting_for_a_thread_of_ones_own_is_waiting_under_another_name(time: FakeTime) -> None:
    clock = _paced(dilation=4.0)
    with clock.phase("decompress", waits=True):
        time.work(0.01)
        time.sleep(0.39)
    with clock.phase("optimizer"):
        time.work(0.02)
    assert clock.take() == pytest.approx({"decompress": 0.1, "optimizer": 0.02})


def test_a_stopwatch_counts_overlapping_intervals_once(time: FakeTime) -> None:
    watch = Stopwatch()
    first = watch.start()
    time.sleep(0.02)
    second = watch.start()
    first()
    first()
    time.sleep(0.02)
    second()
    time.sleep(0.4)
    assert watch.take_s() == pytest.approx(0.04)
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


def test_a_followed_interval_ends_by_itself_and_frees_what_it_held(time: FakeTime) -> None:
    watch, gates = Stopwatch(), [threading.Event() for _ in range(4)]
    freed = threading.Event()

    def fail() -> None:
        gates[1].wait()
        raise RuntimeError("timed out")

    class Held:
        def __call__(self) -> None:
            gates[3].wait()

        def __del__(self) -> None:
            freed.set()

    ends = [watch.follow(wait) for wait in (gates[0].wait, fail, gates[2].wait, Held())]
    time.sleep(0.02)
    for number in (2, 1, 0, 3):  # out of order
        gates[number].set()
    assert freed.wait(HANG_S), "what the last one held"
    assert not watch.is_running
    time.sleep(0.4)
    assert watch.take_s() == pytest.approx(0.02)
    for end in ends:
        end()
    assert watch.take_s() == 0


def test_an_interval_that_is_still_open_counts_until_now(time: FakeTime) -> None:
    watch = Stopwatch()
    end = watch.start()
    time.sleep(0.02)
    assert watch.take_s() == pytest.approx(0.02)
    time.sleep(0.03)
    assert watch.so_far_s() == pytest.approx(0.05)
    end()
    assert watch.take_s() == pytest.approx(0.03)


class _Times(ComputeTimes):
    """A device of which only pacing is asked."""

    @property
    def forward_s(self) -> float:
        return 1.0


def _paced(dilation: float = 1.0) -> PhaseClock:
    clock = PhaseClock(dilation, _Times())
    clock.restart(clock_module.time.monotonic())
    return clock


def test_a_phase_lasts_what_its_device_takes_times_the_dilation(time: FakeTime) -> None:
    clock = _paced(2.0)
    started_s = time.monotonic()
    with clock.phase("forward", 0.05):
        time.work(0.02)
    assert time.monotonic() - started_s == pytest.approx(0.1)
    with clock.phase("backward", 0.1):
        clock.spend(0.04)
        assert time.monotonic() - started_s == pytest.approx(0.18)
        with clock.phase("compress", 0.01):
            pass
        assert time.monotonic() - started_s == pytest.approx(0.2)
    assert time.monotonic() - started_s == pytest.approx(0.32)
    assert clock.take() == pytest.approx({"forward": 0.05, "backward": 0.1, "compress": 0.01})


def test_a_phase_spends_no_more_than_it_has(time: FakeTime) -> None:
    clock = _paced()
    started_s = time.monotonic()
    with clock.phase("backward", 0.1):
        clock.spend(0.06)
        clock.spend(5.0)
    assert time.monotonic() - started_s == pytest.approx(0.1)


def test_work_that_was_late_is_followed_by_no_sleep_until_it_is_made_good(time: FakeTime) -> None:
    clock = _paced()
    started_s = time.monotonic()
    with clock.phase("forward", 0.1):
        time.work(0.3)
    clock.mark()
    with clock.phase("backward", 0.3):
        pass
    # only the last 0.1 of these were slept: the rest of them was over by then
    assert time.monotonic() - started_s == pytest.approx(0.4)
    clock.mark()  # in time again; the stretch stays as late as it was at its latest
    clock.end_stretch()
    assert clock.take_late_s() == pytest.approx(0.2)
    assert clock.take_late_s() == 0.0


def test_a_late_stretch_tells_what_the_device_has_for_it_up_to_its_latest_mark(time: FakeTime) -> None:
    """Of three stretches the second is in time, and the third is late at both of its marks."""
    clock = _paced(2.0)
    with clock.phase("forward", 0.1):
        time.work(0.3)
    clock.mark()
    with clock.phase("backward", 0.3):
        pass
    clock.mark()
    with clock.phase("exposed_communication"):
        time.sleep(0.1)
    with clock.phase("forward", 0.5):
        pass
    clock.mark()
    with clock.phase("exposed_communication"):
        time.sleep(0.1)
    for late_s in (0.1, 0.2):
        with clock.phase("decompress", 0.01):
            time.work(0.02 + late_s)
        clock.mark()
    clock.end_stretch()
    found = {"late_s": 0.05 + 0.15, "late_device_s": 0.1 + 0.02, "behind_s": 0.15}
    assert clock.take_lateness() == pytest.approx(found)
    assert clock.take_late_device_s() == 0.0


def test_what_is_in_time_before_gives_no_time_to_what_is_late_after(time: FakeTime) -> None:
    """Many ranks that compress at once share the cores, however long each of them has slept through backward."""
    clock = _paced(2.0)
    with clock.phase("backward", 0.5):
        time.work(0.1)
    with clock.phase("compress", 0.01):
        time.work(0.12)
    clock.mark()
    clock.end_stretch()
    assert clock.take_lateness() == pytest.approx({"late_s": 0.05, "late_device_s": 0.01, "behind_s": 0.05})


def test_where_no_device_is_known_nothing_is_late(time: FakeTime) -> None:
    assert set(PhaseClock().take_lateness().values()) == {None}


def test_phases_that_make_good_what_others_took_have_their_devices_time(time: FakeTime) -> None:
    """Between phases passes what no device takes; compressing takes too long, and backward has yet to last as long."""
    clock = _paced(2.0)
    with clock.phase("optimizer", 0.0):
        time.work(0.06)
        with clock.phase("forward", 0.05):
            time.work(0.01)
        time.work(0.02)
        with clock.phase("backward", 0.2):
            time.work(0.02)
            with clock.phase("compress", 0.01):
                time.work(0.1)
            clock.spend(0.1)
    assert clock.take() == pytest.approx({"optimizer": 0.0, "forward": 0.05, "backward": 0.2, "compress": 0.01})


def test_what_is_not_made_good_stays_with_the_phase_that_took_too_long(time: FakeTime) -> None:
    clock = _paced()
    with clock.phase("forward", 0.1):
        time.work(0.3)
    with clock.phase("backward", 0.05):
        pass  # makes good a quarter of it
    with clock.phase("exposed_communication"):
        time.sleep(0.2)
    with clock.phase("optimizer", 0.1):
        pass
    found = {"forward": 0.25, "backward": 0.05, "exposed_communication": 0.2, "optimizer": 0.1}
    assert clock.take() == pytest.approx(found)
    with clock.phase("forward", 0.1):
        time.work(0.3)
    assert clock.take() == pytest.approx({"forward": 0.3}), "what is told is told"
    with clock.phase("backward", 0.2):
        pass
    assert clock.take() == pytest.approx({"backward": 0.0})


def test_what_nobody_saw_is_not_late(time: FakeTime) -> None:
    clock = _paced()
    with clock.phase("forward", 0.01):
        time.work(0.1)
    with clock.phase("backward", 0.5):
        pass
    clock.mark()
    clock.end_stretch()
    assert clock.take_late_s() == pytest.approx(0.0)


def test_after_a_wait_time_goes_on_from_what_was_awaited(time: FakeTime) -> None:
    clock = _paced()
    with clock.phase("exposed_communication"):
        time.sleep(0.2)
    started_s = time.monotonic()
    with clock.phase("forward", 0.1):
        pass
    assert time.monotonic() - started_s == pytest.approx(0.1)  # and does not make good what the wait took


def test_cpu_seconds_are_told_beside_the_emulated_ones(time: FakeTime) -> None:
    clock = _paced()
    with clock.phase("forward", 0.2):
        time.work(0.05)
    assert clock.take() == pytest.approx({"forward": 0.2})
    assert clock.take_cpu_s() == pytest.approx({"forward": 0.05})


def test_a_real_second_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the real clock only what no load of the machine can change."""
    monkeypatch.undo()
    started_s = clock_module.time.monotonic()
    clock = _paced(2.0)  # its time begins with it
    with clock.phase("forward", 0.01):
        pass
    took_s = clock_module.time.monotonic() - started_s
    assert took_s >= 0.02
    assert 0 < clock.take()["forward"] <= took_s / 2
