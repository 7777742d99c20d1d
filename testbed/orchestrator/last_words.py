"""How a worker has ended, and the last it said."""

from __future__ import annotations

import os
import signal
from pathlib import Path

_TAIL_BYTES, _TAIL_LINES = 2000, 3


def ended(code: int) -> str:
    """
    Args:
        code: of `Popen.returncode`.
    """
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def last_words(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return " | ".join(lines[-_TAIL_LINES:]) or "none"
