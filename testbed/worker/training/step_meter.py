"""What a step took and what it sent, told once it is over."""

from __future__ import annotations

from typing import Any

from testbed.core.record.telemetry import PHASES
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.run_queue import RunQueueDelay


class StepMeter:
    """Reads the clock and the communicator of one rank; what was told is not told again."""

    def __init__(self, clock: PhaseClock, comm: Communicator, dilation: float) -> None:
        self._clock, self._comm, self._dilation = clock, comm, dilation
        self._queueing = RunQueueDelay()
        comm.stopwatch.began = self._queueing.begin
        self._sent_bytes = 0

    def restart(self, begin_s: float) -> None:
        """Forget what was before `begin_s` (CLOCK_MONOTONIC)."""
        self._clock.restart(begin_s)
        self._queueing.take_s()
        self._comm.stopwatch.take_s()
        self._sent_bytes = self._comm.payload_bytes

    def take(self) -> dict[str, Any]:
        """Since the last call: emulated seconds by phase, of processors, late and queued; bytes sent."""
        phase_s = dict.fromkeys(PHASES, 0.0)
        for name, seconds in self._clock.take().items():
            phase_s[name if name in phase_s else "optimizer"] += seconds  # a strategy's own work leads to the update
        phase_s["communicate"] = self._comm.stopwatch.take_s() / self._dilation
        return {
            "phase_s": phase_s,
            "cpu_s": sum(self._clock.take_cpu_s().values()),
            "late_s": self._clock.take_late_s() if self._clock.is_paced else None,
            "queued_s": self._queueing.take_s(under_way=self._comm.stopwatch.is_running) / self._dilation,
            "payload_bytes": self.take_sent_bytes(),
        }

    def take_sent_bytes(self) -> int:
        """Since the last call: what a thread sends between two steps belongs to the second."""
        before, self._sent_bytes = self._sent_bytes, self._comm.payload_bytes
        return self._sent_bytes - before
