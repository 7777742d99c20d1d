"""Safe end of a process that has used gloo."""

from __future__ import annotations

import atexit
import functools
import time

_PAUSE_S = 0.05


@functools.cache
def shut_down() -> None:
    """Let gloo's threads drop what they hold before the interpreter goes; the first call decides, others do nothing.

    A thread of gloo that lets go of a collective's tensors needs the interpreter's lock for it, and so does one that
    comes back from waiting for a collective. One that gets it only while the interpreter is being taken down is thrown
    out through C++ code that does not allow it, and the whole process ends with SIGABRT. With a script whose last step
    is one of training, that happened at one exit in thirty.
    """
    atexit.register(time.sleep, _PAUSE_S)
