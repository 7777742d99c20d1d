"""A user's script in its container: how it ended, and when it left the others.

The first process of the container is ours (`testbed/worker/script/first_process.py`): it starts the script, and ends
with 128 + n where signal n ended it. It and the script's Python note each start, each time that torch's process group
is joined or left, and the end, in a file of the node's directory.
"""

from __future__ import annotations

import contextlib
import math
import signal
from pathlib import Path
from typing import Protocol

from testbed.core.files import open_regular

NOTE = "longhaul: the script was ended by "
"""Begins the last line of the log where a signal ended the script, as the first process writes it."""
_SIGNALLED = 128
_TAIL_BYTES = 200
_MAX_MARKS_BYTES = 1 << 16


class _Container(Protocol):
    pid: int | None
    log: Path

    def exit_code(self) -> int | None: ...

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None: ...

    def wait(self, timeout_s: float) -> None: ...


class AttendedProcess:
    """The process of a node whose first process attends to the script.

    Args:
        marks: File with what was noted; the worker can write anything to it.
    """

    def __init__(self, container: _Container, marks: Path) -> None:
        self._container = container
        self._marks = marks

    @property
    def pid(self) -> int | None:
        return self._container.pid

    def exit_code(self) -> int | None:
        """Return the script's exit code, minus the signal's number if one ended it; None while it runs."""
        code = self._container.exit_code()
        return _SIGNALLED - code if code is not None and code > _SIGNALLED and self._was_signalled() else code

    def _was_signalled(self) -> bool:
        with self._container.log.open("rb") as log:
            log.seek(max(0, self._container.log.stat().st_size - _TAIL_BYTES))
            return log.read().decode(errors="replace").rstrip().rpartition("\n")[2].startswith(NOTE)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._container.kill(number)

    def wait(self, timeout_s: float) -> None:
        """Raises `RunError` if it has not ended by then."""
        self._container.wait(timeout_s)

    @property
    def has_joined(self) -> bool:
        """True if some process of the script has joined torch's process group since the node was started."""
        return "joined" in self._noted()

    @property
    def left_s(self) -> float | None:
        """Monotonic second at which the script left the others: the group, or the run; None while it is with them."""
        noted = self._noted()
        moments = [noted[what] for what in ("left", "ended") if what in noted]
        return min(moments, default=None)

    def _noted(self) -> dict[str, float]:
        """Return the moments of the latest start; `left` is the first one after the last time that it joined."""
        noted: dict[str, float] = {}
        try:
            with open_regular(self._marks) as file:
                lines = file.read(_MAX_MARKS_BYTES).splitlines()
        except (OSError, ValueError):
            return noted
        for line in lines:
            what, _, moment = line.partition(" ")
            if what == "started":
                noted.clear()
            elif what == "joined":
                noted.pop("left", None)
            with contextlib.suppress(ValueError):  # not ours
                if math.isfinite(at_s := float(moment)):
                    noted.setdefault(what, at_s)
        return noted
