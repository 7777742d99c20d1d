"""An accelerator's seconds are those of one rank's own work, in its turns; phases last as long as they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from testbed.worker.device import clock as clock_module
from testbed.worker.device import device_meter
from testbed.worker.device.accelerator import Accelerator
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.device_meter import DeviceMeter
from tests.unit.fake_time import FakeTime


class Device:
    """A device whose work ends when somebody waits for it; other ranks keep its turn for as long as it is told."""

    def __init__(self, time: FakeTime) -> None:
        self.time, self.done_s, self.others_s = time, 0.0, 0.0
        self.turns: list[str] = []

    def work(self, seconds: float) -> None:
        """Begin so much, of which the host's thread sees nothing."""
        self.done_s = max(self.done_s, self.time.monotonic()) + seconds

    @property
    def left_s(self) -> float:
        """Seconds until all is done."""
        return max(0.0, self.done_s - self.time.monotonic())

    def event(self) -> Mark:
        """Return a new one."""
        return Mark(self)

    def take(self) -> None:
        self.turns.append("take")
        self.time.sleep(self.others_s)

    def give(self) -> None:
        assert not self.left_s, "another rank would meet what this one has begun"
        self.turns.append("give")


class Mark:
    """An event of it."""

    def __init__(self, device: Device) -> None:
        self.device, self.at_s = device, 0.0

    def record(self) -> None:
        self.at_s = self.device.time.monotonic() + self.device.left_s

    def synchronize(self) -> None:
        self.device.time.sleep(self.device.left_s)

    def elapsed_time(self, later: Mark, /) -> float:
        return 1000 * (later.at_s - self.at_s)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    time: Any = FakeTime()
    monkeypatch.setattr(clock_module, "time", time)
    monkeypatch.setattr(device_meter, "time", time)
    monkeypatch.setattr(clock_module.codec_process, "cpu_s", lambda: 0.0)
    return Device(time)


def clock_of(device: Device, dilation: float) -> PhaseClock:
    clock = PhaseClock(dilation, meter=DeviceMeter(device.event, device))
    clock.restart(device.time.monotonic())
    return clock


def test_a_phase_lasts_as_long_as_its_device_works(device: Device) -> None:
    clock, began_s = clock_of(device, 2.0), device.time.monotonic()
    with clock.phase("forward"):
        device.work(0.25)
    with clock.phase("backward"):
        device.work(0.5)
        with clock.phase("compress"):
            device.work(0.125)
    assert device.time.monotonic() - began_s == pytest.approx(2 * 0.875)
    assert clock.take() == pytest.approx({"forward": 0.25, "backward": 0.5, "compress": 0.125})
    assert clock.take_cpu_s() == pytest.approx({"forward": 0.25, "backward": 0.5, "compress": 0.125})
    assert clock.is_paced and clock.behind_s() == pytest.approx(0.0)


@pytest.mark.parametrize("device_s", [0.0, 0.0625])
def test_what_the_host_waits_for_a_core_counts_as_late_and_not_as_work(device: Device, device_s: float) -> None:
    """Of a small model, whose device is idle while its thread prepares."""
    clock, fake = clock_of(device, 1.0), device.time
    with clock.phase("forward"):
        fake.work(0.25, wall_s=1.0)
        device.work(device_s)
    clock.mark()
    assert sum(clock.take_cpu_s().values()) == pytest.approx(0.25 + device_s)
    assert clock.behind_s() == pytest.approx(0.75)


def test_what_the_device_does_beside_its_host_is_counted_once(device: Device) -> None:
    clock = clock_of(device, 1.0)
    with clock.phase("forward"):
        device.work(0.5)
        device.time.work(0.125)
    assert clock.take_cpu_s() == pytest.approx({"forward": 0.5}) and clock.behind_s() == pytest.approx(0.0)


def test_ranks_have_the_device_while_this_one_rests_or_waits(device: Device) -> None:
    clock = clock_of(device, 2.0)
    with clock.phase("forward"):
        device.work(0.25)
        assert device.turns == ["take"]
    assert device.turns == ["take", "give", "take", "give"], "it rested before the phase's end, and after it"
    device.turns.clear()
    with clock.phase("optimizer"), clock.phase(WAITING):
        assert device.turns[-1] == "give", "whom it waits for may want the device"
        device.time.sleep(0.5)
    assert device.turns[-1] == "give"


def test_what_others_take_of_the_device_counts_as_late_until_it_is_made_good(device: Device) -> None:
    clock = clock_of(device, 1.5)
    device.others_s = 0.75
    with clock.phase("forward"):
        device.work(0.5)
        clock.mark()
    assert clock.behind_s() == pytest.approx(0.5 / 1.5), "it took 1.25 s of wall in place of 0.75"
    assert sum(clock.take_cpu_s().values()) == pytest.approx(0.5), "others' work is not its own"
    device.others_s = 0.0
    with clock.phase("backward"):
        device.work(1.0)
    clock.mark()
    assert device.time.monotonic() - 1000 == pytest.approx(1.5 * 1.5)


def test_a_lone_rank_takes_no_turns(device: Device) -> None:
    clock = PhaseClock(meter=DeviceMeter(device.event))
    with clock.phase("forward"):
        device.work(0.25)
    assert clock.take_cpu_s() == pytest.approx({"forward": 0.25}) and not device.turns


def test_what_leaves_a_device_is_copied_and_what_arrives_is_put_back() -> None:
    """With the processor's own memory in a device's place, which is not pinned."""
    staging, plain, tensor = Accelerator(stages=True), Accelerator(), torch.arange(4.0)
    assert plain.to_host(tensor) is tensor and plain.beside(tensor) is tensor and plain.back(tensor, tensor) is tensor
    copy = staging.to_host(tensor)
    assert copy is not tensor and torch.equal(copy, tensor)
    copy.mul_(2)
    assert staging.back(tensor, copy) is tensor and tensor.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert staging.beside(tensor).shape == tensor.shape
    elsewhere = torch.ones(2, device="meta")
    assert staging.to_host(elsewhere) is elsewhere, "what does not lie on the device goes as it is"
    assert Accelerator(torch.device("cuda", 0), stages=True).backend == "gloo"
