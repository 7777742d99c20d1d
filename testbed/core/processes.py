"""So that no process outlives the one that started it, however that ended."""

from __future__ import annotations

import ctypes
import os
import signal

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
