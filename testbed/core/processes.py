"""Processes and what they start: ends with the parent, and standard streams that are there."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
from typing import TextIO, cast

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent() -> None:
    """This process is killed when its parent, or the parent's thread that started it, ends from now on.

    Whoever calls it makes sure that the parent has not ended before. A change of the user takes it back.

    Raises:
        OSError: the kernel refused.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {_PR_SET_PDEATHSIG}: {os.strerror(number)}")


def end_with(parent: int) -> None:
    """This process is killed when its parent ends; at once where that, `parent`, has ended already."""
    end_with_parent()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def open_standard_streams() -> None:
    """Open /dev/null in the place of a standard stream that is closed, or open in the wrong direction.

    Otherwise the next file of ours would get its number, and what is printed would be written into that file.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        if not _is_usable(number, mode):
            descriptor = os.open(os.devnull, mode)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.set_inheritable(number, True)  # for what this process starts
    sys.stdin = _stream(sys.stdin, 0, "r")
    sys.stdout = _stream(sys.stdout, 1, "w")
    sys.stderr = _stream(sys.stderr, 2, "w")


def _is_usable(number: int, mode: int) -> bool:
    try:
        return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE in (mode, os.O_RDWR)
    except OSError:
        return False


def _stream(stream: TextIO | None, number: int, mode: str) -> TextIO:
    """Return Python's stream of a descriptor; it has none of one that was closed when it started."""
    return stream if stream is not None else cast(TextIO, os.fdopen(number, mode, closefd=False))
