"""A container on a Mininet node's network namespace: an OCI bundle run by runc, unprivileged and masked.

Own pid, mount, ipc and uts namespaces; no capability, no new privileges, uid nobody; own /dev, /tmp and /dev/shm;
a filter of system calls; limits on processor weight, memory and processes. Bound back, read-only: the clone, the
virtual environment and whatever PYTHONPATH names, each at its own path. Bound back too: the run's telemetry socket and
the directory in which its ranks meet. The directory of all runs is hidden.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.core import seccomp
from testbed.core.errors import MachineError, RunError
from testbed.core.record.telemetry import KEPT_MODEL, SOCKET_IN_NODE, STORE_IN_NODE
from testbed.core.units import format_size
from testbed.orchestrator.emulation.containers.exit_report import ended, memory_kills
from testbed.orchestrator.emulation.containers.log_pipe import LogPipe
from testbed.orchestrator.emulation.containers.node_disk import OUT_IN_NODE, NodeDisk
from testbed.orchestrator.emulation.containers.oci_mounts import HARDENED, SHM_BYTES, bind, mount, own_mounts
from testbed.orchestrator.emulation.containers.root_filesystem import BoundRoot, MaskedRoot
from testbed.orchestrator.machine.cleanup import CGROUP_ROOT
from testbed.orchestrator.machine.limits import LIMIT_AT_START
from testbed.orchestrator.machine.rights import OF_ROOT, Rights

NOBODY = 65534
MAX_CPU_SHARES, ALL_CPU_SHARES, MIN_CPU_SHARES = 256, 1024, 2
"""Of one container, of all, and what the kernel takes at least; against 1024 of every other process: delay line, probes
and collector come first, however many workers there are."""
MAX_PROCESSES = 512
STORE_BYTES = 1 << 24
MAX_MODEL_BYTES = 1 << 33
"""A bound, not memory: what is written counts against the writer's."""
_RUNC_TIMEOUT_S = 30.0
_CAPABILITIES = ("bounding", "effective", "inheritable", "permitted", "ambient")
_MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug"),
    *("/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware", "/sys/fs/cgroup"),
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def container_name(run_id: str, node: str) -> str:
    return f"longhaul-{run_id}-{node}"


_OF_NODE = tuple(map(Path, ("/", "/usr", "/tmp", "/dev", "/proc", "/sys")))
"""Directories that each node has of its own."""


@dataclass(frozen=True)
class Sandbox:
    """What all containers of a run share."""

    run_id: str
    clone: Path
    runs: Path
    socket: Path
    work: Path
    """A directory of the run's own mount namespace for bundles and the root."""
    memory_bytes: int
    """Most memory of one container, but of those in `limits`."""
    seen: tuple[Path, ...] = ()
    """Directories and files beside the clone and the interpreter's."""
    working_directory: Path | None = None
    """Directory of a user's script."""
    hosts: str = ""
    """Lines of /etc/hosts: the nodes by name."""
    containers: int = 1
    """How many share the cores."""
    keeps_model: bool = False
    """Whether a model, or a server's state, is to be left beside what ranks meet at, which has room for it then."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Most memory of the containers of these nodes, in bytes."""
    rights: Rights = OF_ROOT

    @property
    def cpu_shares(self) -> int:
        return max(MIN_CPU_SHARES, min(MAX_CPU_SHARES, ALL_CPU_SHARES // self.containers))

    @property
    def max_file_bytes(self) -> int:
        """Largest file that a process of a container may write."""
        return MAX_MODEL_BYTES if self.keeps_model else SHM_BYTES

    def bound_back(self) -> list[Path]:
        """Directories and files seen read-only at their own path."""
        named = (Path(path) for path in os.environ.get("PYTHONPATH", "").split(":") if path)
        asked = [self.clone, Path(sys.prefix), *self.seen, *named]
        found: list[Path] = []
        for path in (p.resolve() for p in asked):
            is_there = path.is_dir() or path.is_file()
            if is_there and not any(path.is_relative_to(other) for other in found) and path not in _OF_NODE:
                found.append(path)
        return found

    def user(self) -> tuple[int, int]:
        """(uid, gid): nobody; the clone's owner where a umask keeps it from everybody else; rootless the caller.

        Raises:
            MachineError: that owner is root, who would own too much of what is seen.
        """
        if self.rights.rootless:
            return 0, 0
        found = self.clone.stat()
        if found.st_mode & 0o005 == 0o005:
            return NOBODY, NOBODY
        if found.st_uid == 0:
            raise MachineError(
                f"the clone {self.clone} is root's and closed to others, so workers, who are nobody, cannot read it:"
                f" chmod -R o+rX {self.clone}"
            )
        return found.st_uid, found.st_gid

    def mounts(self, disk: NodeDisk | None = None) -> list[dict[str, Any]]:
        seen = self.bound_back()
        mounts = [*own_mounts(), *(bind(str(path), str(path), "ro") for path in seen)]
        if disk is not None and self.working_directory is not None:
            mounts += [bind(target, source) for target, source in disk.mounts(self.working_directory)]
        for runs in {self.runs, self.clone / "runs"}:
            if runs.is_dir() and any(runs.is_relative_to(path) for path in seen):
                mounts.append(mount(str(runs), "tmpfs", "tmpfs", *HARDENED, "ro", "size=4k"))
        return [
            *mounts,
            bind(SOCKET_IN_NODE, str(self.socket)),
            bind(STORE_IN_NODE, str(self.store), "noexec"),
        ]

    @functools.cached_property
    def root(self) -> MaskedRoot:
        """Of all containers, and beside it the directory in which their ranks meet; made once."""
        self.store.mkdir(parents=True)
        room_bytes = STORE_BYTES + (MAX_MODEL_BYTES if self.keeps_model else 0)
        options = f"nosuid,nodev,noexec,mode=1777,size={room_bytes}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "store", str(self.store)], check=True)
        files = [*self.bound_back(), Path(SOCKET_IN_NODE)]
        kind = BoundRoot if self.rights.rootless else MaskedRoot
        return kind(self.work, files, self.hosts, directories=[Path(STORE_IN_NODE), Path(OUT_IN_NODE)])

    @property
    def kept_model(self) -> Path:
        """Where rank 0 leaves it, as the host sees it."""
        return self.store / KEPT_MODEL

    @property
    def store(self) -> Path:
        """Directory in which ranks meet, as the run sees it."""
        return self.work / "store"

    def empty_store(self) -> None:
        """Remove what ranks that are gone have left where others are to meet."""
        for path in self.store.iterdir():
            path.unlink()

    def disk(self, node: str) -> NodeDisk | None:
        """Return a new disk of `node`; None where no script runs."""
        if (place := self.working_directory) is None:
            return None
        return NodeDisk(node, self.work, place, self.user(), rootless=self.rights.rootless)


class Container:
    """One node's container."""

    def __init__(self, sandbox: Sandbox, root: MaskedRoot, node: str, network: str, log: Path) -> None:
        self.sandbox = sandbox
        self.disk = sandbox.disk(node)
        self.root = root
        self.node = node
        self.network = network
        self.log = log
        self.output = LogPipe(log)
        self.name = container_name(sandbox.run_id, node)
        self.pid: int | None = None
        self._pidfd = -1
        self._exit_code: int | None = None

    def start(self, command: list[str], environment: dict[str, str], directory: Path | None = None) -> None:
        """Run `command` in `directory` (the clone, if none is given); its output goes to the node's log.

        Raises:
            RunError: with what runc said.
        """
        bundle = self.sandbox.work / self.node
        bundle.mkdir(exist_ok=True)  # there already for a node that comes back
        config = self._config(command, environment, directory or self.sandbox.clone)
        (bundle / "config.json").write_text(json.dumps(config))
        pid_file = bundle / "pid"
        output = self.output.open()
        done = subprocess.run(
            [
                *(*self.sandbox.rights.runc(), "--log", str(bundle / "runc.log"), "run", "--detach"),
                *("--bundle", str(bundle), "--pid-file", str(pid_file), self.name),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=_RUNC_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            said = (bundle / "runc.log").read_text().strip() if (bundle / "runc.log").exists() else ""
            raise RunError(f"node {self.node}: runc could not start its container: {said or self.log.name}")
        self.pid = int(pid_file.read_text())
        self._pidfd = os.pidfd_open(self.pid)
        self.sandbox.rights.give_way(self.pid)
        self._exit_code = None

    @property
    def pidfd(self) -> int:
        """Of the first process, once it is started."""
        return self._pidfd

    def cgroups(self) -> list[Path]:
        """Of the container: one in each hierarchy (v1), or the one (v2)."""
        return sorted([*CGROUP_ROOT.glob(self.name), *CGROUP_ROOT.glob(f"*/{self.name}")])

    def exit_code(self) -> int | None:
        """None while it runs or before it was started; minus the signal's number if one ended it."""
        if self._pidfd >= 0 and self._has_ended(0):
            _, status = os.waitpid(self.pid or 0, 0)  # runc left, so it is a child of the run's first process
            self._exit_code = os.waitstatus_to_exitcode(status)
            os.close(self._pidfd)
            self._pidfd = -1
            self.output.settle()
        return self._exit_code

    @property
    def memory_bytes(self) -> int:
        """The most it may have."""
        return self.sandbox.limits.get(self.node, self.sandbox.memory_bytes)

    def ended(self, code: int) -> str:
        """How a process in it has ended, in words; before `delete`, which takes along what the kernel has counted.

        Args:
            code: of `exit_code`.
        """
        if code == -signal.SIGKILL and any(map(memory_kills, self.cgroups())):
            limit = format_size(self.memory_bytes)
            return f"was killed for memory (the limit is {limit}, see memory_limit)"
        return ended(code)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._pidfd >= 0:
            signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, timeout_s: float) -> None:
        """Raises `RunError` if it has not ended by then."""
        if self._pidfd >= 0 and not self._has_ended(timeout_s):
            raise RunError(f"node {self.node}: its container was killed {timeout_s:g} s ago and has not ended")
        self.exit_code()

    def _has_ended(self, timeout_s: float) -> bool:
        poll = select.poll()  # `select.select` takes no descriptor above 1023
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def delete(self) -> None:
        """Kill what is left and remove its state and cgroups."""
        command = [*self.sandbox.rights.runc(), "delete", "--force", self.name]
        subprocess.run(command, capture_output=True, timeout=_RUNC_TIMEOUT_S, check=False)
        self.output.close()

    def _config(self, command: list[str], environment: dict[str, str], directory: Path) -> dict[str, Any]:
        uid, gid = self.sandbox.user()
        return {
            "ociVersion": "1.0.2",
            "hostname": self.node,
            "root": {"path": str(self.root.path), "readonly": True},
            "process": {
                "terminal": False,
                "user": {"uid": uid, "gid": gid},
                "args": command,
                "cwd": str(directory),
                "env": [f"{key}={value}" for key, value in environment.items()],
                "noNewPrivileges": True,
                "capabilities": {kind: [] for kind in _CAPABILITIES},
                "rlimits": [
                    {"type": "RLIMIT_NOFILE", "soft": LIMIT_AT_START[0], "hard": LIMIT_AT_START[1]},
                    {"type": "RLIMIT_FSIZE", "soft": (most := self.sandbox.max_file_bytes), "hard": most},
                ],
            },
            "mounts": self.sandbox.mounts(self.disk),
            "linux": {
                "namespaces": [
                    {"type": "pid"},
                    {"type": "mount"},
                    {"type": "ipc"},
                    {"type": "uts"},
                    {"type": "network", "path": self.network},
                ],
                "seccomp": seccomp.runc_config(os.uname().machine),
                **self.sandbox.rights.limits(
                    self.name,
                    {
                        "cpu": {"shares": self.sandbox.cpu_shares},
                        "memory": {"limit": self.memory_bytes},
                        "pids": {"limit": MAX_PROCESSES},
                    },
                ),
                "maskedPaths": list(_MASKED),
                "readonlyPaths": list(_READ_ONLY),
            },
        }
