"""Network namespaces held by a file descriptor, entering one for a moment, and a /sys that shows the run's own.

A namespace needs no process to live: nothing is started for it until somebody wants a shell or a program there.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RUNTIME_ROOT

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
_COMMAND_TIMEOUT_S = 30.0


def _in_thread(call: Callable[[], T], name: str) -> T:
    """Namespaces belong to threads: what enters one does so in a thread that ends afterwards."""
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.append(call())
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def _fail(number: int, what: str) -> OSError:
    return OSError(number, f"{what}: {os.strerror(number)}")


def enter_network_namespace(path: str) -> None:
    """Move the calling thread into the network namespace at `path`, for good."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise _fail(ctypes.get_errno(), f"setns to the network namespace {path}")
    finally:
        os.close(descriptor)


def in_network_namespace(path: str, call: Callable[[], T]) -> T:
    """Run `call` in the network namespace at `path` and return what it returns.

    A socket made there stays in that namespace, so it can be used from any thread afterwards.
    """

    def work() -> T:
        enter_network_namespace(path)
        return call()

    return _in_thread(work, f"in {path}")


class Namespace:
    """A new network namespace. It ends when it is closed, or with the process that made it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.descriptor = _in_thread(self._unshare, f"unshare {name}")

    @staticmethod
    def _unshare() -> int:
        if _libc.unshare(CLONE_NEWNET) != 0:
            raise _fail(ctypes.get_errno(), "unshare of the network namespace")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def path(self) -> str:
        """For other processes too, those of this process's pid namespace."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def call(self, call: Callable[[], T]) -> T:
        return in_network_namespace(self.path, call)

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """A process of the caller's that lives in this namespace."""
        return subprocess.Popen(["nsenter", f"--net={self.path}", "--", *command], **options)

    def command(self, command: Sequence[str], stdin: str | None = None) -> str:
        """Run a program in the namespace and return what it printed.

        Raises:
            RunError: with the command, the namespace's name and what the program said, if it failed.
        """
        done = subprocess.run(
            ["nsenter", f"--net={self.path}", "--", *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RunError(f"node {self.name}: {' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class HeldNamespace(Namespace):
    """A network namespace that somebody else made, by a descriptor of it, which is closed with this."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor


def own_sysfs() -> None:
    """/sys shows the namespace it was mounted in:

    a fresh one for this network, with the cgroups bound back for runc.
    """
    keep = str(RUNTIME_ROOT / ".cgroup")
    Path(keep).mkdir(exist_ok=True)
    for command in (
        ["mount", "--rbind", "/sys/fs/cgroup", keep],
        ["mount", "-t", "sysfs", "sysfs", "/sys"],
        ["mount", "--rbind", keep, "/sys/fs/cgroup"],
        ["umount", "--lazy", keep],
        ["ip", "link", "set", "dev", "lo", "up"],
    ):
        subprocess.run(command, check=True)
