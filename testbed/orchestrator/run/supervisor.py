"""Around a run: its directory, lock, metrics port and namespaces before; cleaning, sealing and the verdict after.

The supervisor stays in the host's namespaces and does little, so that little can go wrong in it. The run is a child in
namespaces and a session of its own; it dies with the supervisor, and a watcher in yet another session cleans up then.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import (
    EXIT_COMPLETED,
    EXIT_INTERRUPTED,
    InputError,
    Interrupted,
    MachineError,
    RunError,
)
from testbed.core.processes import end_with
from testbed.core.record.run_directory import RUN_ID, RunDir, new_run_id, write_json
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.machine import clone
from testbed.orchestrator.machine.lock import MachineLock, machine_lock
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.machine.rights import OF_ROOT, Rights
from testbed.orchestrator.machine.signals import SAYS_WHERE, Stop
from testbed.orchestrator.observation.exporter import bind
from testbed.orchestrator.run.dilation.calibration import Calibration, calibrate
from testbed.orchestrator.run.dilation.restart import left_behind, prepare, prepare_again
from testbed.orchestrator.run.questions.plugins import end_questions
from testbed.orchestrator.run.seal import exit_status, seal
from testbed.orchestrator.terminal.terminal import say

RESERVE_BYTES = 1 << 20
"""Given back before the record is sealed, so that a full disk still takes a summary."""
RUN_MODULE = "testbed.orchestrator.run"
STOP_TIMEOUT_S = 30.0
"""For a run that was asked to end; then it says where it hangs, in its log, and is killed."""
_LAST_WORDS_S = 1.0
_POLL_S = 0.5


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and where its record lies."""

    run: RunDir
    summary: dict[str, Any]

    @property
    def exit_status(self) -> int:
        return exit_status(self.summary)


def supervise(
    spec: RunSpec,
    *,
    runs_root: Path,
    quiet: bool = False,
    display_fd: int = 1,
    share: bool = False,
    machine: MachineLock | None = None,
    tell_run_id: int | None = None,
    rights: Rights = OF_ROOT,
) -> Outcome:
    """Perform a run and seal its record, whatever its end.

    Args:
        display_fd: where the live display writes, unless `quiet`.
        machine: the lock, where the caller holds it for several runs; `share` says nothing then.
        tell_run_id: a descriptor that takes the run's id, and is closed then.

    Raises:
        InputError: before anything was built.
        MachineError: likewise, or its files cannot be written.
    """
    lock = machine_lock(share=share) if machine is None else contextlib.nullcontext(machine)
    with lock as machine, bind(spec.metrics_port) as metrics, Stop() as stop:
        spec, calibration = _calibrated(spec, stop, _silent if quiet else say)
        end_questions()
        run = _create(spec, runs_root)
        if tell_run_id is not None:
            with contextlib.suppress(OSError), os.fdopen(tell_run_id, "w") as told:  # who asked may be gone
                told.write(run.run_id)
        started_s = time.monotonic()
        reserve = run.path / ".reserve"
        with _written(run), run.held(), _watched(run), _host_proc(spec) as host_proc_fd:
            # under the lock: a directory without a summary and without a holder is taken for a killed run's
            prepare(run, spec, calibration)
            _reserve(reserve)
            options: dict[str, Any] = {"metrics_fd": metrics.fileno(), "host_proc_fd": host_proc_fd, "quiet": quiet}
            status, faults = _perform(run, stop, machine, rights, options, display_fd=display_fd)
            if status == "completed" and (again := prepare_again(run, calibration, _silent if quiet else say)):
                options["restart"], left = again
                status, faults = _perform(run, stop, machine, rights, options, display_fd=display_fd)
                faults += left
            _record_sharing(run, machine)
            faults += left_behind(run)
            reserve.unlink(missing_ok=True)
            summary = seal(run, status, faults, wall_s=time.monotonic() - started_s)
            give_to_caller(run.path)
        return Outcome(run, summary)


def _calibrated(spec: RunSpec, stop: Stop, tell: Callable[[str], None]) -> tuple[RunSpec, Calibration | None]:
    """A terminal's signal ends the measurement too, which is then no fault of it."""
    try:
        return calibrate(spec, tell, give_to_caller)
    except RunError as error:
        if stop.asked:
            raise Interrupted(f"stopped by {stop.asked.name} while a step was measured; nothing was built") from error
        raise


def _silent(_: str) -> None:
    pass


def _create(spec: RunSpec, runs_root: Path) -> RunDir:
    run_id = new_run_id(spec.topo, spec.strategy.name, spec.compressor.name, spec.hash)
    if not RUN_ID.match(run_id):
        raise InputError(
            f"the run's name would be {run_id!r}: give the plug-ins shorter names of letters, digits, _ + -"
        )
    root = runs_root.resolve()
    is_new = not root.exists()
    try:
        run = RunDir.create(root, run_id)
    except OSError as error:  # not of this run: the others of a sweep would find the same
        raise MachineError(f"--runs {runs_root}: no run directory can be made there: {error}") from error
    with _written(run):
        if is_new:
            give_to_caller(root)
    return run


@contextlib.contextmanager
def _written(run: RunDir) -> Iterator[None]:
    """What there is of its files stays; the next command seals or removes them.

    Raises:
        MachineError: for an OSError, such as that of a full disk, which names no file.
    """
    try:
        yield
    except OSError as error:
        raise MachineError(f"{run.path}: the run cannot be made or its record not written: {error}") from error


def _record_sharing(run: RunDir, machine: MachineLock) -> None:
    """Others may have come beside it after it had begun and had written whether it was alone."""
    facts = run.read_json(run.provenance)
    if facts is not None and machine.is_shared and not facts.get("machine_shared"):
        with contextlib.suppress(OSError):  # a full disk is the run's own fault, and told as such
            write_json(run.provenance, {**facts, "machine_shared": True})


def _reserve(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


@contextlib.contextmanager
def _watched(run: RunDir) -> Iterator[None]:
    """A watcher that acts when this process is gone, or at the end of the block, when nothing is left to do."""
    watcher = subprocess.Popen(
        [sys.executable, "-m", "testbed.orchestrator.machine.watcher", run.run_id],
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


@contextlib.contextmanager
def _host_proc(spec: RunSpec) -> Iterator[int | None]:
    """Docker names processes as the host does; a run has a /proc of its own, which does not show them."""
    if spec.runtime != "docker":
        yield None
        return
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _perform(
    run: RunDir, stop: Stop, machine: MachineLock, rights: Rights, options: dict[str, Any], *, display_fd: int
) -> tuple[str, list[str]]:
    """Start the run in its namespaces and wait for its end; returns its status and what went wrong."""
    if stop.asked:
        return "interrupted", [f"stopped by {stop.asked.name} before it began"]
    read_fd, write_fd = os.pipe()
    given = json.dumps({**options, "rootless": rights.rootless, "faults_fd": write_fd, "shared": machine.is_shared})
    passed = [options["metrics_fd"], options["host_proc_fd"], write_fd]
    with run.orchestrator_log.open("a") as log:
        process = subprocess.Popen(
            [*rights.unshare(), sys.executable, "-m", RUN_MODULE, str(run.path), given],
            env={**clone.environment(), **rights.environment(), "LONGHAUL_RUN": run.run_id, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=None if display_fd == 1 else display_fd,
            stderr=log,
            pass_fds=[descriptor for descriptor in passed if descriptor is not None],
            cwd=clone.CLONE,
            # its own session: a terminal's signals come by way of this process, which knows what was asked
            start_new_session=True,
            preexec_fn=functools.partial(end_with, os.getpid()),
        )
    os.close(write_fd)
    said: list[str] = []
    reader = threading.Thread(target=_read_all, args=(read_fd, said), name="faults")
    reader.start()
    code = _wait(process, stop, machine)
    reader.join()
    faults: list[str] = json.loads(said[0]) if said[0] else []
    if code == EXIT_COMPLETED:
        return "completed", faults
    if stop.asked:
        return "interrupted", faults or [f"stopped by {stop.asked.name}"]
    return ("interrupted", faults) if code == EXIT_INTERRUPTED else ("failed", faults or [_ended_by(code)])


def _ended_by(code: int) -> str:
    """For a run that could no longer say why. unshare may make a status of 1 of a child that SIGKILL ended."""
    names = {number.value: number.name for number in signal.Signals}
    how = f"was ended by {names.get(-code, -code)}" if code < 0 else f"ended without a word (status {code})"
    return f"the run's own process {how}; see logs/orchestrator.log"


def _read_all(descriptor: int, said: list[str]) -> None:
    with os.fdopen(descriptor) as file:
        said.append(file.read())


def _wait(process: subprocess.Popen[bytes], stop: Stop, machine: MachineLock) -> int:
    """Wait for the run's end. A signal is passed on until it is heeded; a run that does not end in time is killed."""
    deadline_s: float | None = None
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_S)
        machine.look()
        if stop.asked is None:
            continue
        deadline_s = deadline_s or time.monotonic() + STOP_TIMEOUT_S
        if time.monotonic() < deadline_s:
            _signal_children(process.pid, stop.asked)
            continue
        _signal_children(process.pid, SAYS_WHERE)
        time.sleep(_LAST_WORDS_S)
        process.kill()


def _signal_children(pid: int, number: signal.Signals) -> None:
    for child in _children(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
