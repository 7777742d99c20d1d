"""A process that keeps half a core busy: `half_core.py SECONDS`, after which it ends by itself."""

from __future__ import annotations

import sys
import time

PERIOD_S, SHARE = 0.1, 0.5


def burn(seconds: float) -> None:
    """Use `SHARE` of each period; what another process has kept it from is not made up for."""
    end_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < end_s:
        burnt_s = time.process_time()
        while time.process_time() - burnt_s < SHARE * PERIOD_S and time.monotonic() < end_s:
            pass
        time.sleep(max(0.0, now_s + PERIOD_S - time.monotonic()))


if __name__ == "__main__":
    burn(float(sys.argv[1]))
