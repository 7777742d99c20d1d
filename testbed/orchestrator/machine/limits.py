"""Being on time without real-time priority: what the kernel's scheduler gives everybody who asks."""

from __future__ import annotations

import ctypes
import os
import resource
import struct

FIFO_PRIORITY = 10
"""Of delay lines; probes have a lower one."""
SLICE_NS = 100_000
_SETATTR_GETATTR = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of the system calls, which the C library does not wrap."""
_ATTRIBUTES = struct.Struct("IIQiIQQQ")
"""struct sched_attr of 48 bytes: size, policy, flags, nice, real-time priority, runtime, deadline, period."""
_SCHED_OTHER = 0
_libc = ctypes.CDLL(None, use_errno=True)


def short_slices() -> bool:
    """Ask for turns of 0.1 ms, after which others come, and so for an early one; False where that is not to be had.

    Linux takes it from 6.12 on; earlier ones say yes and do nothing, so it is read back.
    """
    numbers = _SETATTR_GETATTR.get(os.uname().machine)
    if numbers is None:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)  # to keep it: all of them are set at once
    asked = _ATTRIBUTES.pack(_ATTRIBUTES.size, _SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    if _libc.syscall(numbers[0], 0, ctypes.c_char_p(asked), 0) != 0:
        return False
    found = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if _libc.syscall(numbers[1], 0, found, _ATTRIBUTES.size, 0) != 0:
        return False
    return bool(_ATTRIBUTES.unpack(found.raw)[5] == SLICE_NS)


def without_real_time() -> str:
    """Take what there is, and name it for the record."""
    return f"slices of {SLICE_NS / 1e6:g} ms" if short_slices() else "normal"


# How many files a run may hold open.

LIMIT_AT_START = resource.getrlimit(resource.RLIMIT_NOFILE)
"""(soft, hard) as this process was given it: what runs in the nodes gets it back."""


def raise_limit() -> None:
    """To the hard limit, for this process and those it starts from now on."""
    _, most = LIMIT_AT_START
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
