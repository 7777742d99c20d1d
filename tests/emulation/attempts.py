"""Runs inside a container and tries to get out.

Prints a JSON object: attempt -> null if refused, else what was reached.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

KEY, HOST_SOCKET, ABSTRACT_SOCKET, HOST_PID, OTHER_RUN, CLONE = sys.argv[1:7]
_NEW = os.O_CREAT | os.O_RDWR
libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> str:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "succeeded"


def connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(path)
    return "connected"


def write(path: str) -> str:
    Path(path).write_text("x")
    return "written"


def raw_socket() -> str:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    return "opened"


def make_device(device: int) -> str:
    path = "/tmp/device"
    os.mknod(path, stat.S_IFBLK | 0o600, device)
    with open(path, "rb") as file:
        return repr(file.read(16))


def read_device(path: str) -> str:
    with open(path, "rb") as file:
        return repr(file.read(16))


def other_processes() -> str:
    mine = {str(os.getpid()), str(os.getppid()), "1"}
    seen = [entry for entry in os.listdir("/proc") if entry.isdigit() and entry not in mine]
    if not seen:
        raise PermissionError("sees no process but its own")
    return f"sees {seen}"


def kill_host() -> str:
    os.kill(int(HOST_PID), signal.SIGTERM)
    return "signalled"


def command(*words: str) -> Callable[[], str]:
    assert os.path.exists(words[0]), f"{words[0]} is not there: the attempt would prove nothing"

    def attempt() -> str:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
        if done.returncode != 0:
            raise PermissionError(done.stderr.strip())
        return done.stdout[:200]

    return attempt


def foreign_interfaces() -> str:
    found = [name for _, name in socket.if_nameindex() if name not in ("lo", "eth0")]
    if not found:
        raise PermissionError("has loopback only")
    return repr(found)


def memory_past_its_limit() -> str:
    """256 MiB are allowed: a child that takes twice that must be ended by the kernel."""
    code = "b = bytearray(512 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        # the kernel's own end, not some other failure of the child
        assert done.returncode == -signal.SIGKILL, done.stderr
        raise PermissionError("ended by the kernel")
    return "had 512 MiB"


def own_log() -> str:
    if not stat.S_ISREG(os.fstat(1).st_mode):
        raise PermissionError("a pipe: nothing that it does to it is done to a file")
    return "holds a file of the host, whose mode and size it may change"


def _at_end(descriptor: int) -> None:
    os.pwrite(descriptor, b"x", 1 << 33)


def giant_file(grow: Callable[[int], None]) -> str:
    """As files in memory, in /tmp and in /dev/shm: one more than a process may write, with holes or without."""
    for descriptor in (os.memfd_create("giant"), *(os.open(f"{place}/giant", _NEW) for place in ("/tmp", "/dev/shm"))):
        try:
            grow(descriptor)
        except OSError:
            continue
        return f"made a file of {os.fstat(descriptor).st_size} bytes"
    raise PermissionError("too large")


def set_user_id() -> str:
    """A program that runs as its owner, in any place of which the kernel heeds that."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in (place for place in ("/tmp", "/dev/shm", *mounted) if os.path.isdir(place)):
        path = Path(place, f"set-user-id-{os.getpid()}")
        try:
            path.write_bytes(b"")
        except OSError:
            continue
        path.chmod(0o4755)
        heeded = not os.statvfs(place).f_flag & os.ST_NOSUID and path.stat().st_mode & stat.S_ISUID
        path.unlink()
        if heeded:
            return f"in {place}"
    raise PermissionError("nowhere")


ATTEMPTS: dict[str, Callable[[], str]] = {
    "host key": lambda: Path(KEY).read_text(),
    "host passwords": lambda: Path("/etc/shadow").read_text(),
    "host keys of ssh": lambda: repr(os.listdir("/etc/ssh")),
    "home directories": lambda: repr(os.listdir("/root") or os.listdir("/home")[0]),
    "host socket": lambda: connect(HOST_SOCKET),
    "abstract host socket": lambda: connect("\0" + ABSTRACT_SOCKET),
    "docker socket": lambda: connect("/var/run/docker.sock"),
    "host processes": other_processes,
    "signal to a host process": kill_host,
    "other run's files": lambda: Path(OTHER_RUN).read_text(),
    "list of runs": lambda: repr(os.listdir(f"{CLONE}/runs")[0]),
    "write to the clone": lambda: write(f"{CLONE}/README.md.new"),
    "write to the root": lambda: write("/etc/new"),
    "write to sysctl": lambda: write("/proc/sys/kernel/hostname"),
    "write to cgroups": lambda: write("/sys/fs/cgroup/new"),
    "trigger of sysrq": lambda: write("/proc/sysrq-trigger"),
    "mount": lambda: checked(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None)),
    "remount of the root": lambda: checked(libc.mount(b"", b"/", b"", 32, None)),  # 32: MS_REMOUNT, read-write
    "raw block device": lambda: make_device(os.makedev(254, 0)),
    "host memory device": lambda: read_device("/dev/mem"),
    "kernel memory": lambda: read_device("/proc/kcore"),
    "kernel log": lambda: read_device("/dev/kmsg"),
    "host's disks": lambda: read_device("/dev/vda"),
    "raw packets": raw_socket,
    "new address": command("/usr/bin/ip", "address", "add", "10.9.9.9/32", "dev", "lo"),
    "shaping of its own": command("/usr/sbin/tc", "qdisc", "add", "dev", "lo", "root", "pfifo"),
    "other user": lambda: str(os.setuid(0)),
    "host name": lambda: checked(libc.sethostname(b"x", 1)),
    "namespace of process 1": lambda: checked(libc.setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0)),
    "root by chroot": lambda: str(os.chroot("/tmp")),
    "other interface": foreign_interfaces,
    "log as a file": own_log,
    "room in the log": lambda: str(os.posix_fallocate(1, 0, 3 << 30)),
    "log cut short": lambda: str(os.ftruncate(1, 0)),
    "terabyte with holes": lambda: giant_file(lambda descriptor: os.ftruncate(descriptor, 1 << 40)),
    "terabyte without": lambda: giant_file(lambda descriptor: os.posix_fallocate(descriptor, 0, 1 << 40)),
    "byte beyond the largest file": lambda: giant_file(_at_end),
    "program that runs as its owner": set_user_id,
    "memory past its limit": memory_past_its_limit,
}


def main() -> None:
    reached: dict[str, str | None] = {}
    wanted = sys.argv[7:] or list(ATTEMPTS)
    for name, attempt in ((name, ATTEMPTS[name]) for name in wanted):
        try:
            reached[name] = attempt()
        except (OSError, IndexError, subprocess.TimeoutExpired):
            reached[name] = None
    sys.stdout.write(json.dumps(reached) + "\n")


if __name__ == "__main__":
    main()
