"""On the other machine: a run is made in a process of its own, in a folder that is removed once it has been packed.

A request is {"spec", "code_hash", "share"}; a reply {"host", "archive", "faults", "lacks", "ended"}: a run directory
as of `run_archive`, or why there is none, or what this machine lacks for any, or who ended it here before it was
complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from testbed.core.errors import LonghaulError, RunError
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.executors.run_archive import pack
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.run.supervisor import STOP_TIMEOUT_S

REPLY = "reply.json"
ENDS_S = STOP_TIMEOUT_S + 180.0
"""For a run that is told to end: it is sealed, which takes a report too."""
_POLL_S = 0.5
_TAIL_BYTES = 2000


def run_job(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the run that is asked for, and send back its directory; what kept it from being made is in the reply.

    Whoever interrupts this ends the run; so does the end of this process, however it comes.
    """
    nothing: dict[str, Any] = {"archive": None, "faults": [], "lacks": [], "ended": None}
    reply = {"host": socket.gethostname(), **nothing}
    try:
        return {**reply, **_carried_out(request)}
    except LonghaulError as error:
        return {**reply, "faults": list(error.faults)}
    except OSError as error:  # such as a full disk
        return {**reply, "lacks": [f"no run can be made in {tempfile.gettempdir()}: {error}"]}


def _carried_out(request: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from a reply that says nothing.

    Raises:
        RunError: the run's directory holds what cannot be sent.
    """
    with _own_folder(_scratch()) as (folder, lock), (folder / "log").open("w+b") as log:
        (folder / "request.json").write_text(json.dumps(request))
        process = subprocess.Popen(
            # the kernel tells the run when this process is gone; a preexec_fn could hang where there are threads
            ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "testbed.orchestrator.executors", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],  # the folder is in use for as long as either lives
            env=environment(),
            cwd=CLONE,
        )
        try:
            status = _wait(process)
        finally:
            _end(process)
        answer = _answer(folder / REPLY)
        if answer is None:
            return {"faults": [f"the job ended with status {status} and without a word: {_tail(log)}"]}
        archive = None if answer["run_id"] is None else pack(RunDir(folder / answer["run_id"]))
        return {"archive": archive, **{key: answer[key] for key in ("faults", "lacks", "ended")}}


def _scratch() -> Path:
    """On a disk of this machine: what runs record goes there while they are going on.

    Raises:
        RunError: somebody else made it.
    """
    path = Path(tempfile.gettempdir()) / f"longhaul-jobs-{os.geteuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise RunError(f"{path}: belongs to somebody else: remove it, or set TMPDIR")
    return path


def _wait(process: subprocess.Popen[bytes]) -> int:
    """In short waits: what interrupts a call is heeded between two of them."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answer(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-_TAIL_BYTES:].decode(errors="replace").strip()


@contextlib.contextmanager
def _own_folder(scratch: Path) -> Iterator[tuple[Path, IO[str]]]:
    """A folder and the lock that says it is in use; those that nobody uses any more are removed."""
    with (scratch / "lock").open("w") as all_of_them:
        fcntl.flock(all_of_them, fcntl.LOCK_EX)  # between making a folder and locking it nobody looks
        for path in scratch.iterdir():
            if path.is_dir() and not _in_use(path):
                shutil.rmtree(path, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=scratch, prefix="job-"))
        lock = (folder / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    with lock:
        try:
            yield folder, lock
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _in_use(folder: Path) -> bool:
    try:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
