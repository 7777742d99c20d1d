"""From a child of the fork server to a process of a container: cgroups, namespaces, user, capabilities, system calls.

What runc does for a process that it starts, done by the process itself, in the order in which each step is still
allowed. Standard library alone; the C library's calls are made by ctypes, since Python 3.11 has no `os.setns`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
from dataclasses import dataclass
from typing import Any

from testbed.core import seccomp
from testbed.core.processes import end_with_parent

_NEW_NAMESPACE = seccomp.NEW_NAMESPACES
_JOINED = sum(_NEW_NAMESPACE[f"CLONE_NEW{kind}"] for kind in ("NS", "NET", "IPC", "UTS"))
_PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_SECCOMP = 4, 15, 22
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = "/proc/sys/kernel/cap_last_cap"
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a worker is to live."""

    node: str
    cgroups: tuple[str, ...]
    """Paths of `cgroup.procs`, one for each hierarchy."""
    uid: int
    gid: int
    open_files: tuple[int, int]
    """(soft, hard) limit."""
    max_file_bytes: int
    environment: dict[str, str]
    directory: str
    rootless: bool
    """Root is that of a user namespace alone: it has no cgroups to give, and may not give up groups."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Place:
        return cls(**{**data, "cgroups": tuple(data["cgroups"]), "open_files": tuple(data["open_files"])})


def enter_pid_namespace(descriptor: int) -> None:
    """For children that the caller forks from now on; by a pidfd or a descriptor of the namespace."""
    _setns(descriptor, _NEW_NAMESPACE["CLONE_NEWPID"])


def confine(place: Place, parent: int, container: int, log: int) -> None:
    """Make the calling process, a child with one thread, one of the container's; its parent's death ends it.

    Args:
        parent: a pidfd of its parent.
        container: a pidfd of the container's first process.
        log: takes what the process prints.

    Raises:
        OSError: the kernel refused a step; the process must end.
    """
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setsid()
    if not place.cgroups and not place.rootless:
        raise OSError("the container has no cgroups; nothing would limit what runs in it")
    for path in place.cgroups:
        with open(path, "wb", buffering=0) as file:
            file.write(b"0")  # whoever writes
    with open(_LAST_CAPABILITY) as file:
        capabilities = int(file.read()) + 1
    _setns(container, _JOINED)  # from here on root, working directory and devices are the container's
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(parent, 3)
    os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    resource.setrlimit(resource.RLIMIT_NOFILE, place.open_files)
    resource.setrlimit(resource.RLIMIT_FSIZE, (place.max_file_bytes, place.max_file_bytes))
    os.umask(0o022)
    _give_up_privileges(place, capabilities)
    end_with_parent()  # not before: a change of the user takes it back
    _prctl(_PR_SET_DUMPABLE, 1)  # or its own /proc would be root's; nobody but the container's processes sees it
    poll = select.poll()
    poll.register(3, select.POLLIN)
    if poll.poll(0):
        raise ProcessLookupError("the process that workers are forked from is gone")  # before it was asked
    os.close(3)
    _prctl(_PR_SET_NAME, ctypes.create_string_buffer(place.node.encode()[:15]))
    os.environ.clear()
    os.environ.update(place.environment)
    os.chdir(place.directory)
    _load_filter()


def _give_up_privileges(place: Place, capabilities: int) -> None:
    for capability in range(capabilities):
        _prctl(_PR_CAPBSET_DROP, capability)
    if not place.rootless:
        os.setgroups([])
    os.setresgid(place.gid, place.gid, place.gid)
    os.setresuid(place.uid, place.uid, place.uid)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 of each
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(sets)), "capset")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _load_filter() -> None:
    code = seccomp.program(os.uname().machine)
    program = _Program(len(code) // 8, code)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))


def _setns(descriptor: int, kinds: int) -> None:
    _checked(_libc.setns(descriptor, kinds), "setns")


def _prctl(option: int, *values: Any) -> None:
    arguments = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    arguments += [ctypes.c_ulong(0)] * (4 - len(arguments))
    _checked(_libc.prctl(option, *arguments), f"prctl {option}")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
