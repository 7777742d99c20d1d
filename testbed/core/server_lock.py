"""Whether a server of ours serves a data directory: a lock beside it, which lives as long as the server's process."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


def hold(data: Path) -> IO[bytes]:
    """Take the lock; a process that inherits the file keeps it held.

    Raises:
        BlockingIOError: `data` is served already.
    """
    file = _lock_file(data).open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def is_served(data: Path) -> bool:
    try:
        with _lock_file(data).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock_file(data: Path) -> Path:
    return data.with_name(f"{data.name}.lock")
