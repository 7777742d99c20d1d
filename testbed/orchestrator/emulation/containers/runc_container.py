"""A container on a Mininet node's network namespace: an OCI bundle run by runc, unprivileged and masked.

Own pid, mount, ipc and uts namespaces; no capability, no new privileges, uid nobody; own /dev, /tmp and /dev/shm;
a filter of system calls; limits on processor weight, memory and processes. Bound back, read-only: the clone, the
virtual environment and whatever PYTHONPATH names, each at its own path. Bound back too: the run's telemetry socket,
the node's own socket at the rendezvous, and a directory of its own. No two nodes share a place that one can write to.
The directory of all runs is hidden, wherever it is.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

from testbed.core import seccomp
from testbed.core.errors import RunError
from testbed.core.units import format_size
from testbed.orchestrator.emulation.containers.exit_report import ended, memory_kills
from testbed.orchestrator.emulation.containers.log_pipe import LogPipe
from testbed.orchestrator.emulation.containers.root_filesystem import MaskedRoot
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.machine.cleanup import CGROUP_ROOT
from testbed.orchestrator.machine.limits import LIMIT_AT_START

MAX_PROCESSES = 512
_RUNC_TIMEOUT_S = 30.0
_CAPABILITIES = ("bounding", "effective", "inheritable", "permitted", "ambient")
_MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug"),
    *("/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware", "/sys/fs/cgroup"),
    # of the whole machine: what waits for a lock, with its place, and counts that one call of another node sets
    *("/proc/locks", "/proc/buddyinfo", "/proc/key-users", "/proc/modules", "/proc/pagetypeinfo", "/proc/zoneinfo"),
    *(f"/proc/sys/fs/{name}" for name in ("aio-nr", "dentry-state", "file-nr", "inode-nr", "inode-state")),
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def container_name(run_id: str, node: str) -> str:
    return f"longhaul-{run_id}-{node}"


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
        self.sandbox.make_store(self.node)
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
        devices = self.sandbox.devices(self.node)
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
            "mounts": self.sandbox.mounts(self.node, self.disk),
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
                    [device.rule() for device in devices],
                ),
                "devices": [device.to_oci() for device in devices],
                "maskedPaths": list(_MASKED),
                "readonlyPaths": list(_READ_ONLY),
            },
        }
