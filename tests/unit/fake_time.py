"""Time that passes when it is told to: in the place of the module `time` where a clock reads it."""

from __future__ import annotations


class FakeTime:
    """The wall and this thread's CPU time. What is slept passes on the wall alone."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = 1000.0, 10.0

    def monotonic(self) -> float:
        return self._wall_s

    def thread_time(self) -> float:
        return self._cpu_s

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self._wall_s += seconds

    def work(self, cpu_s: float, wall_s: float | None = None) -> None:
        """So many CPU seconds are used, in so many on the wall: as many, unless the core has others too."""
        self._cpu_s += cpu_s
        self._wall_s += cpu_s if wall_s is None else wall_s
