"""Jobs of ours that Slurm still has, by its controller.

submitit asks `sacct` every ten minutes, which needs a database that many clusters lack. `squeue` is wherever `sbatch`
is.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Iterable

ASK_EVERY_S = 5.0
SETTLES_S = 15.0
"""From when a job is gone until its reply is given up: a shared file system may show a new file late."""
_LIMIT_S = 60.0


class SlurmQueue:
    """The jobs of this user that wait, run or are about to end."""

    def __init__(self) -> None:
        self._asked_s = -math.inf
        self._gone_since_s: dict[str, float] = {}
        self.answers = True
        """Whether the controller did when it was last asked: one that is restarted does not for a while."""

    def look(self, tickets: Iterable[str], *, at_once: bool = False) -> None:
        """Ask which of the jobs `tickets` are there, unless that was done a moment ago and need not be `at_once`."""
        now_s = time.monotonic()
        if not at_once and now_s - self._asked_s < ASK_EVERY_S:
            return
        self._asked_s = now_s
        command = ["squeue", "--noheader", "--format=%i", f"--user={os.getuid()}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            self.answers = False
            return
        self.answers = done.returncode == 0
        if self.answers:
            there = set(done.stdout.split())
            gone = [ticket for ticket in tickets if ticket not in there]
            self._gone_since_s = {ticket: self._gone_since_s.get(ticket, now_s) for ticket in gone}

    def is_gone(self, ticket: str) -> bool:
        """Return True once it has been gone for so long that no reply will come."""
        return time.monotonic() - self._gone_since_s.get(ticket, math.inf) > SETTLES_S
