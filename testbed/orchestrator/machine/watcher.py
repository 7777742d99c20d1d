"""Outlives the run by a moment, in a session of its own, so that even `kill -9` of the run's whole group is cleaned up.

`python -m testbed.orchestrator.machine.watcher RUN_ID`: stdin is a pipe whose other end only the supervisor holds. When
it
closes, by whatever end, everything of the run is removed. If the supervisor has already done it, there is nothing to
remove.
"""

from __future__ import annotations

import os
import signal
import sys

from testbed.orchestrator.machine.cleanup import remove_leftovers


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 64):
        pass
    remove_leftovers(sys.argv[1])


if __name__ == "__main__":
    main()
