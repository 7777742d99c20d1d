"""A node's container by docker, on the same network namespace and under the same limits as runc's (`container`).

Docker's daemon lives in the host's namespaces, a run in its own. So two containers stand for a node:

* a holder, which only waits: docker makes its network namespace with no network in it (`--network none`), the run gets
  that namespace as a descriptor, by way of the host's /proc, and puts the emulated links into it;
* the node's own, which joins that network (`--network container:HOLDER`), ends and comes back as events have it.

A worker is the first process of its container: its pid namespace is no descendant of the run's, so that none can be
forked into it. The kernel does not tell the run that process's id either, so each node has a socket of its own.
"""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
from pathlib import Path

from testbed.core import seccomp
from testbed.core.errors import RunError
from testbed.core.record.telemetry import RENDEZVOUS_IN_NODE, SOCKET_IN_NODE, STORE_IN_NODE
from testbed.core.units import format_size
from testbed.orchestrator.emulation.containers.exit_report import ended
from testbed.orchestrator.emulation.containers.log_pipe import LogPipe
from testbed.orchestrator.emulation.containers.oci_mounts import SHM_BYTES, TMP_BYTES
from testbed.orchestrator.emulation.containers.runc_container import MAX_PROCESSES, container_name
from testbed.orchestrator.emulation.containers.sandbox import MAX_MODEL_BYTES, MAX_STORED_FILES, STORE_BYTES, Sandbox
from testbed.orchestrator.emulation.kernel.namespaces import HeldNamespace
from testbed.orchestrator.machine.cleanup import CGROUP_ROOT
from testbed.orchestrator.machine.docker_client import IMAGE, RUN_LABEL, DockerError, command_line, docker
from testbed.orchestrator.machine.limits import LIMIT_AT_START

SECCOMP_FILE = "seccomp.json"
_HOLDER_PROCESSES = 64
"""It has one; but who starts it has threads, in its place, and of 4 it lacked one in 1 of 40 starts."""
_SIGNALLED = 128
"""Docker's status of a container that signal n ended is 128 + n."""


def mount_option(**fields: str) -> str:
    """The value of one --mount; docker reads it as a line of CSV, so a path may hold a comma."""
    words = [key if not value else f"{key}={value}" for key, value in fields.items()]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(words)
    return line.getvalue()


class Holders:
    """The holders of a run's nodes, each with a volume of the node's. A context manager: leaving it removes them.

    Args:
        host_proc: a descriptor of the host's /proc, whose process ids are docker's.
    """

    def __init__(self, run_id: str, nodes: list[str], host_proc: int, *, keeps_model: bool) -> None:
        self.run_id = run_id
        self.nodes = nodes
        self.namespaces: dict[str, HeldNamespace] = {}
        self._host_proc = host_proc
        self._room_bytes = STORE_BYTES + (MAX_MODEL_BYTES if keeps_model else 0)
        self._pids: dict[str, int] = {}

    def __enter__(self) -> Holders:
        try:
            for node in self.nodes:
                docker(*self.volume_arguments(node))
                docker(*self.arguments(node))
                said = docker("inspect", "--format", "{{.State.Pid}}", holder_name(self.run_id, node))
                self._pids[node] = int(said)
                descriptor = os.open(f"{said}/ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._host_proc)
                self.namespaces[node] = HeldNamespace(node, descriptor)
        except DockerError as error:
            self.__exit__()
            raise RunError(f"docker could not make the nodes' namespaces: {error}") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """What docker does not remove now is told by the cleaning that follows every run."""
        for command in (
            ("rm", "--force", *(holder_name(self.run_id, node) for node in self.nodes)),
            ("volume", "rm", "--force", *(volume_name(self.run_id, node) for node in self.nodes)),
        ):
            try:
                docker(*command)
            except DockerError:
                continue

    def store(self, node: str) -> Path:
        """Return a node's directory as the run sees it: through its holder's root, which has the volume too."""
        return Path(f"/proc/{os.getpid()}/fd/{self._host_proc}/{self._pids[node]}/root{STORE_IN_NODE}")

    def volume_arguments(self, node: str) -> list[str]:
        options = f"nosuid,nodev,noexec,mode=1777,size={self._room_bytes},nr_inodes={MAX_STORED_FILES}"
        return [
            *("volume", "create", "--driver", "local", "--label", f"{RUN_LABEL}={self.run_id}"),
            *("--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", f"o={options}", volume_name(self.run_id, node)),
        ]

    def arguments(self, node: str) -> list[str]:
        """It keeps the node's volume mounted from the first start to the run's end."""
        return [
            *("run", "--detach", "--pull", "never", "--name", holder_name(self.run_id, node)),
            *("--label", f"{RUN_LABEL}={self.run_id}", "--env", f"LONGHAUL_RUN={self.run_id}"),
            *("--cgroup-parent", f"/{container_name(self.run_id, node)}", "--network", "none", "--hostname", node),
            *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534"),
            *("--pids-limit", str(_HOLDER_PROCESSES), "--log-driver", "none"),
            *("--mount", _store(self.run_id, node)),
            *("--entrypoint", "sleep", IMAGE, "infinity"),
        ]


def holder_name(run_id: str, node: str) -> str:
    return f"{container_name(run_id, node)}.net"


def volume_name(run_id: str, node: str) -> str:
    return f"{container_name(run_id, node)}.store"


def _store(run_id: str, node: str) -> str:
    """Without `volume-nocopy` docker would give it the image's owner and mode, and workers could not write there."""
    return mount_option(type="volume", src=volume_name(run_id, node), dst=STORE_IN_NODE, **{"volume-nocopy": ""})


def write_files(sandbox: Sandbox, files: Path) -> None:
    """What all containers of a run are given of /etc, and the filter of system calls, into `files`."""
    (files / "hosts").write_text(f"127.0.0.1 localhost\n{sandbox.hosts}")
    (files / "resolv.conf").write_text("")  # a look-up must fail at once, not time out
    (files / SECCOMP_FILE).write_text(json.dumps(seccomp.runc_config(os.uname().machine)))


class DockerContainer:
    """One node's container; as `Container` but for who starts it.

    Args:
        files: a directory that the host sees, with what `write_files` puts there; the node's socket is there too.
    """

    def __init__(self, sandbox: Sandbox, files: Path, node: str, log: Path) -> None:
        self.sandbox = sandbox
        self.disk = None
        """Docker's daemon does not see what the run mounts: a script has /tmp alone."""
        self.node = node
        self.log = log
        self.name = container_name(sandbox.run_id, node)
        self.socket, self.rendezvous = files / f"{node}.sock", files / f"{node}.meet"
        self.pid: int | None = None
        """Of the docker command that waits for it, which ends as it does."""
        self._files = files
        self._process: subprocess.Popen[bytes] | None = None
        self._output = LogPipe(log)
        self._id = ""

    def start(self, command: list[str], environment: dict[str, str], directory: Path | None = None) -> None:
        """Run `command` in `directory` (the clone, if none is given); its output goes to the node's log.

        Raises:
            RunError: with what docker said.
        """
        try:
            self._id = docker(*self.arguments(command, environment, directory or self.sandbox.clone))
        except DockerError as error:
            raise RunError(f"node {self.node}: docker could not make its container: {error}") from error
        output = self._output.open()
        self._process = subprocess.Popen(
            [*command_line(), "start", "--attach", self.name],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def arguments(self, command: list[str], environment: dict[str, str], directory: Path) -> list[str]:
        """Of docker: all that keeps the container from the host, and all its limits."""
        uid, gid = self.sandbox.user()
        memory, (soft, hard) = str(self.memory_bytes), LIMIT_AT_START
        given = [word for key, value in environment.items() for word in ("--env", f"{key}={value}")]
        return [
            *("create", "--pull", "never", "--name", self.name, "--label", f"{RUN_LABEL}={self.sandbox.run_id}"),
            *("--cgroup-parent", f"/{self.name}"),
            *("--network", f"container:{holder_name(self.sandbox.run_id, self.node)}", "--ipc", "private"),
            *("--read-only", "--cap-drop", "ALL", "--user", f"{uid}:{gid}"),
            *("--security-opt", "no-new-privileges", "--security-opt", f"seccomp={self._files / SECCOMP_FILE}"),
            *("--cpu-shares", str(self.sandbox.cpu_shares), "--memory", memory),
            *("--pids-limit", str(MAX_PROCESSES), "--ulimit", f"nofile={soft}:{hard}", "--shm-size", str(SHM_BYTES)),
            *("--ulimit", f"fsize={self.sandbox.max_file_bytes}"),
            *("--tmpfs", f"/tmp:rw,exec,nosuid,nodev,mode=1777,size={TMP_BYTES}", "--log-driver", "none"),
            *(word for mount in self._mounts() for word in ("--mount", mount)),
            *(*given, "--workdir", str(directory), "--entrypoint", command[0], IMAGE, *command[1:]),
        ]

    def _mounts(self) -> list[str]:
        sandbox = self.sandbox
        return [
            *(mount_option(type="bind", src=str(path), dst=str(path), readonly="") for path in sandbox.bound_back()),
            *(
                mount_option(type="tmpfs", dst=str(runs), **{"tmpfs-size": "4096", "tmpfs-mode": "0555"})
                for runs in sandbox.hidden()
            ),
            mount_option(type="tmpfs", dst="/sys/fs/cgroup", **{"tmpfs-size": "4096", "tmpfs-mode": "0555"}),
            *(
                mount_option(type="bind", src=str(self._files / name), dst=f"/etc/{name}", readonly="")
                for name in ("hosts", "resolv.conf")
            ),
            mount_option(type="bind", src=str(self.socket), dst=SOCKET_IN_NODE, readonly=""),
            mount_option(type="bind", src=str(self.rendezvous), dst=RENDEZVOUS_IN_NODE, readonly=""),
            _store(sandbox.run_id, self.node),
        ]

    def cgroups(self) -> list[Path]:
        """Of the container: one in each hierarchy (v1), or the one (v2)."""
        inside = f"{self.name}/{self._id}"
        return sorted([*CGROUP_ROOT.glob(inside), *CGROUP_ROOT.glob(f"*/{inside}")]) if self._id else []

    def exit_code(self) -> int | None:
        """None while it runs or before it was started; minus the signal's number if one ended it."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._output.settle()
        return _SIGNALLED - code if code is not None and code - _SIGNALLED in signal.valid_signals() else code

    @property
    def memory_bytes(self) -> int:
        """The most it may have."""
        return self.sandbox.limits.get(self.node, self.sandbox.memory_bytes)

    def ended(self, code: int) -> str:
        """How it has ended, in words; before `delete`. Its cgroups are gone by then: docker has kept what they said."""
        if code == -signal.SIGKILL and self._was_killed_for_memory():
            limit = format_size(self.memory_bytes)
            return f"was killed for memory (the limit is {limit}, see memory_limit)"
        return ended(code)

    def _was_killed_for_memory(self) -> bool:
        try:
            return docker("inspect", "--format", "{{.State.OOMKilled}}", self.name) == "true"
        except DockerError as error:
            raise RunError(f"node {self.node}: docker does not say how its container ended: {error}") from error

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Nothing where it has ended."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            docker("kill", "--signal", number.name, self.name)
        except DockerError as error:
            if "is not running" not in str(error):
                raise RunError(f"node {self.node}: docker could not send {number.name}: {error}") from error

    def wait(self, timeout_s: float) -> None:
        """Raises `RunError` if it has not ended by then."""
        try:
            if self._process is not None:
                self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RunError(f"node {self.node}: its container has not ended within {timeout_s:g} s") from None

    def delete(self) -> None:
        """Kill what is left and remove it; what docker does not remove now is told by the cleaning after the run."""
        try:
            docker("rm", "--force", self.name)
        except DockerError:
            return
        if self._process is not None:
            self._process.wait()
        self._output.close()
