"""How a worker has ended, and the last it said."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_TAIL_BYTES, _TAIL_LINES = 2000, 3


def ended(code: int) -> str:
    """
    Args:
        code: of `Popen.returncode`.
    """
    names = {number.value: number.name for number in signal.Signals}  # real-time signals have none
    return f"was ended by {names.get(-code, f'signal {-code}')}" if code < 0 else f"ended with status {code}"


def memory_kills(cgroup: Path) -> int:
    """How many of its processes the kernel has killed for want of memory: of cgroup v2 or v1."""
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError):
            counts = dict(line.split() for line in (cgroup / name).read_text().splitlines())
            return int(counts.get("oom_kill", 0))
    return 0


def exit_report(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return f"its last words: {' | '.join(lines[-_TAIL_LINES:]) or 'none'}"
