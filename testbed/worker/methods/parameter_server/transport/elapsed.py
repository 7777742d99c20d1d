"""How long a piece of work takes on the run's clock, whatever else the machine does."""

from __future__ import annotations

import time

from testbed.worker.device.clock import cpu_s


class Elapsed:
    """Emulated seconds since it was made: those on the wall over the dilation, and no less than its CPU seconds.

    A phase of the clock lasts as many emulated seconds as it takes CPU seconds, and the sleep that makes it so comes at
    its end, after the work: on the wall alone work would look `dilation` times as fast as what it is held against. Work
    that has to wait for a core takes what it takes.

    Of the thread that makes it, with the helper process that codes for that thread.
    """

    def __init__(self, dilation: float) -> None:
        self._dilation = dilation
        self._wall_s, self._cpu_s = time.monotonic(), cpu_s()

    def seconds(self) -> float:
        return max(cpu_s() - self._cpu_s, (time.monotonic() - self._wall_s) / self._dilation)
