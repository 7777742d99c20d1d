"""Around a run: its directory, lock, metrics port and namespaces before; cleaning, sealing and the verdict after.

The supervisor stays in the host's namespaces and does little, so that little can go wrong in it. The run is a child in
namespaces of its own; a watcher in a session of its own cleans up should the supervisor be killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, EXIT_INVALID, MachineError
from testbed.core.rundir import RUNTIME_ROOT, RunDir, new_run_id, write_json
from testbed.core.spec import RunSpec
from testbed.orchestrator import clone, provenance
from testbed.orchestrator.cleanup import remove_leftovers
from testbed.orchestrator.observation.exporter import bind
from testbed.orchestrator.run import EXIT_INTERRUPTED
from testbed.orchestrator.seal import seal

MACHINE_LOCK = RUNTIME_ROOT / "machine.lock"
RESERVE_BYTES = 1 << 20
"""Given back before the record is sealed, so that a full disk still takes a summary."""
_STOP_TIMEOUT_S = 15.0
_UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--mount", "--ipc", "--uts"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and where its record lies."""

    run: RunDir
    summary: dict[str, Any]

    @property
    def exit_status(self) -> int:
        if self.summary["status"] != "completed":
            return EXIT_FAILED
        return EXIT_INVALID if self.summary["verdict"] == "invalid" else EXIT_COMPLETED


@contextlib.contextmanager
def machine_lock(*, share: bool) -> Iterator[None]:
    """One emulation at a time, since two would share the cores unknowingly; `share` lets this one in beside another."""
    RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
    with MACHINE_LOCK.open("w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if share else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if not share:
                raise MachineError(
                    "another run is going on this machine, and two would share its cores: wait for it, or give --share"
                ) from None
        yield


def supervise(spec: RunSpec, *, runs_root: Path, quiet: bool = False, share: bool = False) -> Outcome:
    """Perform a run and seal its record, whatever its end.

    Raises:
        InputError, MachineError: before anything was built.
    """
    with machine_lock(share=share), bind(spec.metrics_port) as metrics:
        run_id = new_run_id(spec.topo, spec.strategy.name, spec.compressor.name, spec.hash)
        run = RunDir.create(runs_root.resolve(), run_id)
        started_s = time.monotonic()
        reserve = run.path / ".reserve"
        with run.hold_lock(), _watched(run):
            # under the lock: a directory with a spec and nobody holding its lock is taken for a killed run's
            write_json(run.spec, {**spec.to_json(), "code_hash": provenance.code_hash()})
            _reserve(reserve)
            status, faults = _perform(run, metrics.fileno(), quiet=quiet)
            remove_leftovers(run.run_id)
            reserve.unlink(missing_ok=True)
            summary = seal(run, status, faults, wall_s=time.monotonic() - started_s)
            _give_to_caller(run.path)
        return Outcome(run, summary)


def _reserve(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


@contextlib.contextmanager
def _watched(run: RunDir) -> Iterator[None]:
    """A watcher that acts when this process is gone, or at the end of the block, when nothing is left to do."""
    watcher = subprocess.Popen(
        [sys.executable, "-m", "testbed.orchestrator.watcher", run.run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=clone.environment(),
        cwd=clone.CLONE,
    )
    try:
        yield
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()


def _perform(run: RunDir, metrics_fd: int, *, quiet: bool) -> tuple[str, list[str]]:
    """Start the run in its namespaces and wait for its end; returns its status and what went wrong."""
    read_fd, write_fd = os.pipe()
    options = json.dumps({"metrics_fd": metrics_fd, "faults_fd": write_fd, "quiet": quiet})
    with run.orchestrator_log.open("a") as log:
        process = subprocess.Popen(
            [*_UNSHARE, sys.executable, "-m", "testbed.orchestrator.run", str(run.path), options],
            env={**clone.environment(), "LONGHAUL_RUN": run.run_id, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stderr=log,
            pass_fds=[metrics_fd, write_fd],
            cwd=clone.CLONE,
        )
    os.close(write_fd)
    with _forwarding(process), os.fdopen(read_fd) as said:
        code = process.wait()
        text = said.read()
    faults: list[str] = json.loads(text) if text else []
    if code == EXIT_COMPLETED:
        return "completed", faults
    if code == EXIT_INTERRUPTED:
        return "interrupted", faults
    return "failed", faults or [f"the run ended with status {code} and said nothing; logs/orchestrator.log may say why"]


@contextlib.contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals go to the run, which ends in order; one that does not is killed with all it started."""

    def forward(number: int, _frame: object) -> None:
        for pid in _children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        signal.signal(signal.SIGALRM, lambda *_: process.kill())
        signal.setitimer(signal.ITIMER_REAL, _STOP_TIMEOUT_S)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _give_to_caller(path: Path) -> None:
    """Files made under sudo belong to who called it."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if user is None or group is None:
        return
    for found in [path.parent, path, *path.rglob("*")]:
        os.chown(found, int(user), int(group), follow_symlinks=False)
