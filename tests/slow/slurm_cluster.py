"""A Slurm of the test's own on this machine: munged, slurmctld, and two nodes, each a slurmd by `-N`."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from testbed.orchestrator.machine.clone import environment
from tests.machine import ENDS_WITH_TESTS

LIMIT_S = 120.0
NODES = ("n0", "n1")
_PARTITION = "all"


class SlurmCluster:
    """Of two nodes that take one job each; none of its processes outlives the context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._conf = folder / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environ = {**environment(), "SLURM_CONF": str(self._conf)}

    def __enter__(self) -> SlurmCluster:
        try:
            self._write()
            socket_, key = self._folder / "munge.socket", self._folder / "munge.key"
            own = [f"--{name}-file={self._folder}/munge.{name}" for name in ("log", "pid", "seed")]
            self._start("munged", "munged", "--foreground", "--force", f"--socket={socket_}", f"--key-file={key}", *own)
            self._wait_for(socket_.exists)
            self.start_controller()
            for node in NODES:
                self._start(node, "slurmd", "-D", "-f", str(self._conf), "-N", node)
            self._wait_for(lambda: self.call("sinfo", "--noheader", "--format=%T %D").split() == ["idle", "2"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(AssertionError):  # a controller that does not answer has no more to say
            self.call("scancel", "--full", f"--partition={_PARTITION}")
            self._wait_for(lambda: not self.jobs())
        for name in reversed(list(self._daemons)):
            self.stop(name)
        for pid in self._steps():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _steps(self) -> list[int]:
        """Keepers of jobs, known by open files of their node, and all below them: left where a job did not end."""
        parents: dict[int, int] = {}
        found: set[int] = set()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if any(os.readlink(file).startswith(f"{self._folder}/spool-") for file in (process / "fd").iterdir()):
                    found.add(int(process.name))
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return sorted(found)

    def _write(self) -> None:
        self._folder.chmod(0o755)
        (self._folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (self._folder / "munge.key").chmod(0o400)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self._folder / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        with contextlib.ExitStack() as held:
            free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            controller_port, *ports = [one.getsockname()[1] for one in free]
        lines = [
            "ClusterName=longhaul",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller_port}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self._folder}/munge.socket",
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
            f"StateSaveLocation={self._folder}/state",
            f"SlurmctldPidFile={self._folder}/slurmctld.pid",
            f"SlurmdPidFile={self._folder}/slurmd-%n.pid",
            f"SlurmdSpoolDir={self._folder}/spool-%n",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "ReturnToService=2",
            *(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=2000"
                for node, port in zip(NODES, ports, strict=True)
            ),
            f"PartitionName={_PARTITION} Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP",
        ]
        self._conf.write_text("\n".join(lines) + "\n")

    def _start(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [*ENDS_WITH_TESTS, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environ,
                start_new_session=True,
            )

    def start_controller(self) -> None:
        """With the state that it left, if it ran before. Returns when it has heard of nodes that run."""
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self._conf))
        self._wait_for(lambda: self._tried("scontrol", "ping").returncode == 0)
        running = [node for node in NODES if node in self._daemons]
        self._wait_for(lambda: not any("UNKNOWN" in self.state(node) for node in running))

    def stop(self, name: str) -> None:
        """`slurmctld`, `munged` or a node, in order: a controller writes down what it knows."""
        daemon = self._daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
            raise AssertionError(f"{name} did not end within {LIMIT_S:.0f} s: {self._logs()}") from None

    def _tried(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def call(self, *command: str) -> str:
        """One of Slurm's own commands; what it says."""
        done = self._tried(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}{self._logs()}"
        return done.stdout

    def jobs(self, *filters: str) -> list[int]:
        """Numbers of those that have not ended; fewer by filters such as `--states=running` and `--nodelist=n0`."""
        return [int(number) for number in self.call("squeue", "--noheader", "--format=%i", *filters).split()]

    def state(self, node: str) -> str:
        """What the controller says of a node, such as `IDLE+DRAIN`: `sinfo` has one word for several states."""
        return self.call("scontrol", "--oneliner", "show", "node", node).partition(" State=")[2].split()[0]

    def _wait_for(self, met: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not met():
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            assert not dead and time.monotonic() < deadline_s, f"{dead or 'Slurm is not ready'}: {self._logs()}"
            time.sleep(0.2)

    def _logs(self) -> str:
        return "".join(f"\n--- {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self._folder.glob("*.out")))
