"""New lines of a run's events, by the byte at which they begin."""

from __future__ import annotations

import os
from dataclasses import dataclass

from testbed.core.files import open_regular_bytes
from testbed.core.record.run_directory import RunDir

MAX_BYTES = 1 << 19
"""Most that one answer has; the next one goes on from there."""


@dataclass(frozen=True)
class Tail:
    """Whole lines of `events.jsonl`."""

    lines: bytes
    next_byte: int
    """Offset in the file at which the next line begins."""
    has_more: bool
    """True if there are further lines already."""
    is_restarted: bool
    """True if the file is shorter than it was, so that `lines` are its first ones."""
    is_ended: bool
    """True if the run has written its summary, so that no line will follow."""


def tail(run: RunDir, from_byte: int, max_bytes: int = MAX_BYTES) -> Tail:
    """Return the lines that begin at `from_byte`.

    Raises:
        ValueError: The file is no regular one.
    """
    # Before the file is read: a line that came with the summary must not be missed.
    is_ended = run.summary.exists()
    try:
        file = open_regular_bytes(run.events)
    except FileNotFoundError:
        return Tail(b"", 0, False, from_byte > 0, is_ended)
    with file:
        size_bytes = os.fstat(file.fileno()).st_size
        is_restarted = from_byte > size_bytes
        start = 0 if is_restarted else from_byte
        file.seek(start)
        read = file.read(max_bytes)
        if b"\n" not in read:  # One line longer than an answer, or the beginning of one.
            read += file.readline(100 * max_bytes)
    lines = read[: read.rfind(b"\n") + 1]
    end = start + len(lines)
    return Tail(lines, end, bool(lines) and end < size_bytes, is_restarted, is_ended)
