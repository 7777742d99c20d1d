"""Runs inside a container and says what its process is: identity, namespaces, files, which system calls are refused."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from testbed.core import seccomp

NAMESPACES = ("net", "mnt", "pid", "ipc", "uts", "user")
_libc = ctypes.CDLL(None, use_errno=True)


def _refused() -> dict[str, int]:
    """Error number of each call of the table, made with zeros: without a filter many would complain of those."""
    column = seccomp.architecture(os.uname().machine).column
    numbers = {name: found[column] for name, found in {**seccomp.DENIED, "clone3": seccomp.CLONE3}.items()}
    made = {name: _call(number) for name, number in numbers.items() if number is not None}
    for name, flag in seccomp.NEW_NAMESPACES.items():
        made[name] = _call(seccomp.CLONE[column] or 0, flag)
    for name, command in seccomp.FILE_COMMANDS.items():
        made[name] = _call(seccomp.FCNTL[column] or 0, 0, command)
    for name, operation in seccomp.FUTEX_OPERATIONS.items():
        made[name] = _call(seccomp.FUTEX[column] or 0, 0, operation)
    for family in range(1, 50):
        made[f"socket {family}"] = _call(seccomp.SOCKET[column] or 0, family, 0xFFFF)  # no such type: none is opened
    return made


def _call(number: int, *arguments: int) -> int:
    ctypes.set_errno(0)
    result = _libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, (*arguments, *(0,) * (6 - len(arguments)))))
    return ctypes.get_errno() if result == -1 else 0


def _files() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _devices() -> dict[str, str]:
    """What opening each device of a driver comes to."""
    found = {}
    for name in sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")):
        try:
            os.close(os.open(f"/dev/{name}", os.O_WRONLY))
            found[name] = "opened"
        except OSError as error:
            found[name] = errno.errorcode[error.errno or 0]
    return found


def _library() -> dict[str, Any]:
    """Whether the loader finds the driver's library by its name, and whether it can be written to."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = sorted({line.split(maxsplit=5)[5] for line in maps if "libcuda.so" in line})
    writable = [path for path in loaded if os.access(path, os.W_OK)]
    return {"loaded": loaded, "writable": writable}


def facts() -> dict[str, Any]:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    wanted = ("Seccomp", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Uid", "Gid", "Groups")
    return {
        "status": {name: status[name].strip() for name in wanted},
        "namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in NAMESPACES},
        "first's namespaces": {kind: os.readlink(f"/proc/1/ns/{kind}") for kind in NAMESPACES},
        "cgroups": sorted(Path("/proc/self/cgroup").read_text().split()),
        "first's cgroups": sorted(Path("/proc/1/cgroup").read_text().split()),
        "environ": Path("/proc/self/environ").read_bytes().decode().rstrip("\0").split("\0"),
        "environment": dict(os.environ),
        "files": _files(),
        "file size": resource.getrlimit(resource.RLIMIT_FSIZE),
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "directory": os.getcwd(),
        "interpreter is read-only": bool(os.statvfs("/proc/self/exe").f_flag & os.ST_RDONLY),
        "umask": status["Umask"].strip(),
        "refused": _refused(),
        "devices": _devices(),
        "library": _library(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts()) + "\n")
