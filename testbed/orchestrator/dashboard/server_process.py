"""Servers on loopback that end with this process, by whatever end."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.core.errors import RunError
from testbed.core.processes import end_with

LOOPBACK = "127.0.0.1"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_POLL_S = 0.05


@dataclass
class ServerProcess:
    """A server on loopback in a process of its own; `start`, `wait_until_ready`, `stop`."""

    name: str
    port: int
    log: Path
    ready_path: str = "/"
    """Path that is answered once it is ready."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> list[str]:
        """Return what starts it. The port is known by then."""
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        """Return its environment; None: that of this process."""
        return None

    def fault(self, flag: str) -> str | None:
        """Return why it could not be started; None if it can.

        Args:
            flag: Flag that chooses its port.
        """
        if self.port and (found := _port_fault(self.port)):
            return f"{flag} {self.port}: {found}; choose another, or 0 for any free one"
        return None

    def start(self, pass_fds: Sequence[int] = ()) -> None:
        """Start it; port 0 becomes a free one."""
        self.port = self.port or _free_port()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=pass_fds,
                env=self.environment(),
                # a terminal's signals come by way of this process, which ends it in order
                start_new_session=True,
                preexec_fn=functools.partial(end_with, os.getpid()),
            )

    def wait_until_ready(self) -> None:
        """Wait until it answers.

        Raises:
            RunError: It ended, or did not become ready in time.
        """
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not _answers(f"{self.address}{self.ready_path}"):
            self.check()
            if time.monotonic() > deadline_s:
                raise RunError(f"{self.name}: was not ready after {READY_TIMEOUT_S:.0f} s; see {self.log}")
            time.sleep(_POLL_S)

    def check(self) -> None:
        """Check that it has not ended.

        Raises:
            RunError: It has.
        """
        if self._process is not None and self._process.poll() is not None:
            last = (self.log.read_text(errors="replace").strip().splitlines() or ["no word why"])[-1]
            raise RunError(f"{self.name}: ended with {self._process.returncode}: {last}; see {self.log}")

    def stop(self) -> None:
        """End it in order; kill it if that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _listener(port: int) -> socket.socket:
    listening = socket.socket()
    # connections in TIME_WAIT do not count, as they do not for Prometheus
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except BaseException:
        listening.close()
        raise
    return listening


def _port_fault(port: int) -> str | None:
    try:
        _listener(port).close()
    except OverflowError:
        return "must be from 0 to 65535"
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "in use by another process"
        if error.errno == errno.EACCES:
            return "only root may use it"
        raise
    return None


def _free_port() -> int:
    with contextlib.closing(_listener(0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    # no proxy of the environment's is asked the way to loopback
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
