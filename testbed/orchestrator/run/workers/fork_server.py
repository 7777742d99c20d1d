"""The orchestrator's end of the fork server, which imports torch once and forks each worker into its container.

It is started before the network is built, so that the import overlaps with it; `testbed.worker.process.fork_server`
says what is
exchanged. Each container's first process is one that only waits; the worker is forked beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.emulation.containers.driver import NO_DRIVER, Driver
from testbed.orchestrator.emulation.containers.root_filesystem import bind_read_only
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.machine import clone
from testbed.orchestrator.machine.limits import LIMIT_AT_START
from testbed.orchestrator.machine.rights import OF_ROOT, Rights

PAUSE = ("sleep", "infinity")
"""First process of a container that a worker is forked into."""
_MAX_MESSAGE_BYTES = 1 << 16
_END_TIMEOUT_S = 2.0


class Process(Protocol):
    """A node's program, started by runc or forked."""

    @property
    def pid(self) -> int | None:
        """In the run's pid namespace; None before it is known."""

    def exit_code(self) -> int | None:
        """None while it runs or before it was started; minus the signal's number if one ended it."""

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None: ...

    def wait(self, timeout_s: float) -> None:
        """Raises `RunError` if it has not ended by then."""


def interpreter_environment(run_id: str) -> dict[str, str]:
    """All that a Python process inside the nodes has beside its node's name, and all that the fork server has."""
    return {
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "LONGHAUL_RUN": run_id,
        "PYTHONPATH": clone.environment()["PYTHONPATH"],
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "HOME": "/tmp",
    }


class ForkedProcess:
    """A worker that the fork server forked into a container."""

    def __init__(self, fork_server: ForkServerClient, container: Container) -> None:
        self.pid: int | None = None
        self._fork_server = fork_server
        self._container = container
        self._exit_code: int | None = None
        self._ended = threading.Event()

    def exit_code(self) -> int | None:
        return self._exit_code

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if number == signal.SIGKILL:
            self._container.kill()  # its first process takes all others along
        else:
            self._fork_server.signal(self._container.node, number)

    def wait(self, timeout_s: float) -> None:
        if not self._ended.wait(timeout_s):
            raise RunError(f"node {self._container.node}: its worker has not ended within {timeout_s:g} s")

    def forked(self, pid: int) -> None:
        self.pid = pid
        self._container.sandbox.rights.give_way(pid)

    def ended(self, code: int) -> None:
        self._container.output.settle()
        self._exit_code = code
        self._ended.set()
        self._container.kill()

    def orphaned(self) -> None:
        """The fork server is gone, and the kernel ended this worker with it: a child of the run's first process now.

        Nobody else takes note of its end, without which its container cannot end.
        """
        if self.pid is not None and self._exit_code is None:
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(self.pid, 0)
                self.ended(os.waitstatus_to_exitcode(status))


class ForkServerClient:
    """A context manager: leaving it ends the process and with it all workers."""

    def __init__(self, spec: RunSpec, run: RunDir, rights: Rights = OF_ROOT, driver: Driver = NO_DRIVER) -> None:
        self._spec, self._driver = spec, driver
        self._rights = rights
        self._run = run
        self._workers: dict[str, ForkedProcess] = {}
        self._said = ""
        self._is_leaving = False
        self.failure: str | None = None
        """Why no worker can live any more; None while they can."""
        self.imported_s = 0.0
        """The moment (CLOCK_MONOTONIC) of the first fork, until which it imported; 0 before."""

    def __enter__(self) -> ForkServerClient:
        self._connection, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        scratch = self._run.runtime / "fork-server"
        scratch.mkdir(mode=0o700)
        # of a forked worker /proc/self/exe is the file here: its owner must not set its times or mode through it
        interpreter = Path(sys.executable).resolve()
        bind_read_only(interpreter, interpreter)
        with far_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testbed.worker", "fork-server", str(far_end.fileno())],
                env=interpreter_environment(self._run.run_id) | self._driver.environment(),
                stdin=subprocess.PIPE,
                stdout=sys.stderr,  # the orchestrator's log
                pass_fds=[far_end.fileno()],
                cwd=clone.CLONE,
            )
        spec = {**self._spec.to_json(), "events": []}
        given = {"spec": spec, "scratch": str(scratch), "nice": self._rights.nice_of_imports}
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(json.dumps(given).encode())
        self._reader = threading.Thread(target=self._read, name="fork-server", daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_leaving = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._connection.close()

    def fork(self, container: Container, environment: Mapping[str, str], directory: Path) -> ForkedProcess:
        """Ask for a worker in a container whose first process waits. It is forked once the imports are done.

        Raises:
            RunError: the fork server is gone.
        """
        uid, gid = container.sandbox.user()
        place = {
            "node": container.node,
            "cgroups": [str(path / "cgroup.procs") for path in container.cgroups()],
            "uid": uid,
            "gid": gid,
            "rootless": container.sandbox.rights.rootless,
            "open_files": LIMIT_AT_START,
            "max_file_bytes": container.sandbox.max_file_bytes,
            "environment": dict(environment),
            "directory": str(directory),
        }
        worker = self._workers[container.node] = ForkedProcess(self, container)
        self._send({"event": "fork", "place": place}, [container.pidfd, container.output.open()])
        return worker

    def signal(self, node: str, number: signal.Signals) -> None:
        self._send({"event": "signal", "node": node, "number": int(number)})

    def _send(self, message: dict[str, Any], files: list[int] | None = None) -> None:
        try:
            socket.send_fds(self._connection, [json.dumps(message).encode()], files or [])
        except OSError as error:
            self._reader.join(_END_TIMEOUT_S)
            raise RunError(
                self.failure or f"the process that workers are forked from does not listen: {error}"
            ) from error

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._connection.recv(_MAX_MESSAGE_BYTES):
                self._take(json.loads(data))
        if not self._is_leaving:
            code = self._process.wait()
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            said = self._said or "none; see logs/orchestrator.log"
            self.failure = f"the process that workers are forked from {how}; its last words: {said}"
            for worker in self._workers.values():
                worker.orphaned()

    def _take(self, message: dict[str, Any]) -> None:
        if message["event"] == "fault":
            self._said = message["message"]
        elif message["event"] == "forked":
            self.imported_s = self.imported_s or time.monotonic()
            self._workers[message["node"]].forked(message["pid"])
        elif message["pid"] == (worker := self._workers[message["node"]]).pid:
            worker.ended(message["code"])  # another's end is of a pilot's worker, which has a successor
