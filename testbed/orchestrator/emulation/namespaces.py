"""The run's own namespaces: entering a network namespace for a moment, and a /sys that shows this one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


def enter_network_namespace(pid: int) -> None:
    """Move the calling thread into the network namespace of process `pid`, for good."""
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(descriptor, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns to the network namespace of process {pid}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def in_network_namespace(pid: int, call: Callable[[], T]) -> T:
    """Run `call` in the network namespace of `pid` and return what it returns.

    A socket made there stays in that namespace, so it can be used from any thread afterwards.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            enter_network_namespace(pid)
            result.append(call())
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=work, name=f"netns-{pid}")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def own_sysfs() -> None:
    """/sys shows the namespace it was mounted in:

    a fresh one for this network, with the cgroups bound back for runc.
    """
    keep = "/run/longhaul/.cgroup"
    Path(keep).mkdir(exist_ok=True)
    for command in (
        ["mount", "--rbind", "/sys/fs/cgroup", keep],
        ["mount", "-t", "sysfs", "sysfs", "/sys"],
        ["mount", "--rbind", keep, "/sys/fs/cgroup"],
        ["umount", "--lazy", keep],
        ["ip", "link", "set", "dev", "lo", "up"],
    ):
        subprocess.run(command, check=True)
