"""The virtual clock: the main thread's time, by phase, paced to what the emulated device takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from compressors.parts import codec_process
from testbed.worker.device.compute_times import ComputeTimes

WAITING = "exposed_communication"
_WAITED_S = 2e-4
"""A wait that took less found its collective complete."""


def cpu_s() -> float:
    """CPU seconds of the calling thread, and of the process that runs C codecs for it."""
    return time.thread_time() + codec_process.cpu_s()


class Meter(Protocol):
    """Counter of seconds that a phase without seconds of its own takes."""

    def seconds(self) -> float:
        """Return the seconds so far."""

    def resume(self) -> None:
        """Work begins, or goes on."""

    def pause(self) -> None:
        """It rests: others may work."""


class _Thread:
    """CPU seconds of the clock's thread, which count by themselves."""

    def seconds(self) -> float:
        return cpu_s()

    def resume(self) -> None:
        """The kernel lets threads take turns."""

    def pause(self) -> None:
        """Likewise."""


@dataclass
class _Open:
    name: str
    remaining_s: float | None
    """Emulated seconds it has still to take; None: as many as the meter counts."""
    waits: bool


class PhaseClock:
    """Charges wall time to the innermost open phase; seconds are emulated ones.

    With dilation k, a phase of d seconds lasts k*d on the wall: real work that ends early is followed by sleep. Work
    that ends late is not followed by any until the delay is made good: what counts is when others can see it, so
    `mark` is called when something is sent, and a stretch of work, from the end of one wait to the next, is as late as
    its latest mark. After a wait, time goes on from when what was awaited came. What one phase takes too long and a
    later one makes good is time of the later one, so that each has the device's unless the rank is late.
    """

    def __init__(
        self,
        dilation: float = 1.0,
        times: ComputeTimes | None = None,
        settle: Callable[[], None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        """
        Args:
            settle: waits for what a phase has begun elsewhere, on an accelerator, before the phase ends.
            meter: of an emulated device that works for this rank; None counts the CPU seconds of this thread.
        """
        self.dilation = dilation
        self.times = times or ComputeTimes()
        self._settle, self._has_device = settle, meter is not None
        self._meter: Meter = meter or _Thread()
        self._seconds: dict[str, float] = {}
        self._cpu_seconds: dict[str, float] = {}
        self._excess_s: dict[str, float] = {}
        self._open: list[_Open] = []
        self._since_s = self._due_s = self._charged_due_s = time.monotonic()
        self._cpu_since_s = self._meter.seconds()
        self._on_time_s, self._stretch_late_s, self._stretch_device_s = self._due_s, 0.0, 0.0
        self._late_s = self._late_device_s = 0.0

    @property
    def is_paced(self) -> bool:
        """Whether a device says how long phases last; otherwise nothing can be late."""
        return self._has_device or self.times.forward_s is not None

    @contextmanager
    def phase(self, name: str, seconds: float | None = None, *, waits: bool = False) -> Iterator[None]:
        """Spend time in `name`; the phase around it is suspended.

        Args:
            seconds: emulated; without, those that the meter counts.
            waits: for what somebody else does, which takes as long as it takes; that of `WAITING` always does.
        """
        waits = waits or name == WAITING
        self._charge()
        self._open.append(_Open(name, seconds, waits))
        self._take_turn()
        entered_s = time.monotonic()
        if not self.is_paced:
            self._due_s = entered_s  # nothing is late, so nothing is to be made good
        try:
            yield
        finally:
            if self._settle is not None:
                self._settle()
            if waits:
                self._resume(entered_s)
            else:
                self._spend_cpu()
                self._spend(self._open[-1].remaining_s or 0.0)
            self._charge()
            self._open.pop()
            self._take_turn()

    def codec(self, name: str, elements: int, round_: int) -> AbstractContextManager[None]:
        """The phase `name` of round `round_` of reducing a bucket."""
        return self.phase(name, self.times.codec_s(elements, round_))

    def work(self, name: str, share: float = 1.0) -> AbstractContextManager[None]:
        """A piece of what a strategy computes beside gradients and their update, as `ExtraWork` names it.

        Args:
            share: of it that is done now.
        """
        whole_s = self.times.work_s(name)
        return self.phase(name, None if whole_s is None else share * whole_s)

    def spend(self, seconds: float) -> None:
        """So many of the open phase's seconds are over now; no more than it has left."""
        current = self._open[-1]
        if current.remaining_s is not None:
            seconds = min(seconds, current.remaining_s)
            current.remaining_s -= seconds
            self._spend(seconds)

    def mark(self) -> None:
        """Others see now what this rank does: it sends."""
        self._spend_cpu()
        late_s = time.monotonic() - self._due_s
        if late_s > self._stretch_late_s:
            self._stretch_late_s = late_s
            self._stretch_device_s = self._due_s - self._on_time_s

    def restart(self, at_s: float) -> None:
        """Time begins at `at_s` (CLOCK_MONOTONIC), which is past: nothing was taken yet."""
        self._since_s, self._due_s, self._charged_due_s = time.monotonic(), at_s, at_s
        self._excess_s = {}
        self._cpu_since_s = self._meter.seconds()
        self._seconds, self._cpu_seconds = {}, {}
        self._begin_stretch(at_s)
        self._late_s = self._late_device_s = 0.0

    def take(self) -> dict[str, float]:
        """Emulated seconds per phase since the last call."""
        seconds, self._seconds, self._excess_s = self._seconds, {}, {}
        return {name: value / self.dilation for name, value in seconds.items()}

    def take_cpu_s(self) -> dict[str, float]:
        """Seconds of the meter per phase since the last call: CPU seconds of this thread, with its device's."""
        seconds, self._cpu_seconds = self._cpu_seconds, {}
        return seconds

    def take_late_s(self) -> float:
        """Emulated seconds by which the stretches that ended since the last call were late."""
        late_s, self._late_s = self._late_s, 0.0
        return late_s / self.dilation

    def take_lateness(self) -> dict[str, float | None]:
        """Lateness since the last call as a `step` event tells it; None where no device says how long phases last."""
        found: dict[str, float | None] = {
            "late_s": self.take_late_s(),
            "late_device_s": self.take_late_device_s(),
            "behind_s": self.behind_s(),
        }
        return found if self.is_paced else dict.fromkeys(found)

    def take_late_device_s(self) -> float:
        """Emulated seconds that the device has for what was late: from when the rank was last in time until the mark.

        They tell how lateness falls with the dilation: what the cores need stays, what the device has grows. What was
        slept before is of no use to what comes later.
        """
        device_s, self._late_device_s = self._late_device_s, 0.0
        return device_s / self.dilation

    def behind_s(self) -> float:
        """Emulated seconds by which the stretch that has not ended is late so far, or would be if the rank sent now."""
        return max(self._stretch_late_s, time.monotonic() - self._due_s, 0.0) / self.dilation

    def end_stretch(self) -> None:
        self._late_s += self._stretch_late_s
        self._late_device_s += self._stretch_device_s
        self._begin_stretch(self._due_s)

    def _begin_stretch(self, due_s: float) -> None:
        self._on_time_s = due_s
        self._stretch_late_s = self._stretch_device_s = 0.0

    def _spend(self, seconds: float) -> None:
        self._due_s += self.dilation * seconds
        self._sleep()

    def _sleep(self) -> None:
        """Rest until what is due; others may work meanwhile."""
        left_s = self._due_s - time.monotonic()
        if left_s > 0:
            self._meter.pause()
            time.sleep(left_s)
            self._on_time_s = self._due_s
            self._take_turn()

    def _take_turn(self) -> None:
        """Work in the innermost phase; rest where that waits, or there is none."""
        if self._open and not self._open[-1].waits:
            self._meter.resume()
        else:
            self._meter.pause()

    def _spend_cpu(self) -> None:
        """For the time since the last charge, of a phase that has no seconds given."""
        now_s = self._meter.seconds()
        spent_s, self._cpu_since_s = now_s - self._cpu_since_s, now_s
        if self._open:
            current = self._open[-1]
            self._cpu_seconds[current.name] = self._cpu_seconds.get(current.name, 0.0) + spent_s
            if current.remaining_s is None and not current.waits:
                self._due_s += self.dilation * spent_s
                if self.dilation > 1:
                    self._sleep()

    def _resume(self, entered_s: float) -> None:
        now_s = time.monotonic()
        if now_s - entered_s > _WAITED_S:
            self.end_stretch()
            self._due_s = self._on_time_s = self._charged_due_s = now_s
            self._excess_s = {}

    def _charge(self) -> None:
        self._spend_cpu()
        now_s = time.monotonic()
        if self._open:
            name, taken_s = self._open[-1].name, now_s - self._since_s
            self._seconds[name] = self._seconds.get(name, 0.0) + taken_s
            if self.is_paced and not self._open[-1].waits:
                self._make_good(name, taken_s - (self._due_s - self._charged_due_s))
        self._since_s, self._charged_due_s = now_s, self._due_s

    def _make_good(self, name: str, excess_s: float) -> None:
        """Note how much longer a phase took than its device, or move to it the excess of others that it makes good."""
        if excess_s >= 0:
            self._excess_s[name] = self._excess_s.get(name, 0.0) + excess_s
            return
        for other, other_s in self._excess_s.items():
            moved_s = min(-excess_s, other_s)
            self._excess_s[other] -= moved_s
            self._seconds[other] -= moved_s
            self._seconds[name] += moved_s
            excess_s += moved_s
