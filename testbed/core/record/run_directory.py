"""Every path of a run: its directory, which is the truth and is kept, and its runtime directory, which is not."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.core.errors import MachineError
from testbed.core.files import open_regular, open_regular_bytes, parse_json, read_object, whole_lines
from testbed.core.record.directory import Directory, is_ours_alone, open_lock

OWNER = "LONGHAUL_OWNER"
"""Environment variable of what is root in a user namespace of its own: the user id of who called."""


def runtime_root(uid: int) -> Path:
    """Of a user's runs: /run takes root's alone."""
    return Path("/run/longhaul") if uid == 0 else Path(tempfile.gettempdir()) / f"longhaul-{uid}"


OWN_UID = int(os.environ.get(OWNER, os.geteuid()))
RUNTIME_ROOT = runtime_root(OWN_UID)
MAX_EVENTS_BYTES = 8_000_000_000
"""Bound of the event file. A record is some megabytes, and one of a day on many ranks some gigabytes."""
RUN_ID = re.compile(r"^[0-9]{8}T[0-9]{6}Z-[A-Za-z0-9_.+-]{1,80}$")


def new_run_id(topo: str, strategy: str, compressor: str, spec_hash: str, now_s: float | None = None) -> str:
    """Return `<utc time>-<topo>-<strategy>-<compressor>-<short hash>`.

    Of a script that was given no compressor it names none: the script may choose one by itself.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    names = [topo, strategy] if (strategy, compressor) == ("script", "none") else [topo, strategy, compressor]
    return "-".join([stamp, *names, spec_hash[:8]])


def make_runtime_root(place: Path) -> None:
    """Make a user's folder for sockets and locks.

    Raises:
        MachineError: Somebody else has made it, or may write in it, who could replace what is put there.
    """
    place.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    if not is_ours_alone(place):
        raise MachineError(f"{place}: belongs to somebody else, so a run's sockets are not safe there: remove it")


def write_json(path: Path, data: Any) -> None:
    """Write by rename, so that a reader never meets half a file."""
    text = json.dumps(data, indent=2, allow_nan=False)
    with Directory(path.parent.resolve()) as folder, folder.replaced(path.name) as file:
        file.write(f"{text}\n".encode())


class RunDir:
    """The files of one run under `runs/<run id>/` (see docs/run-directory.md)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.spec = path / "spec.json"
        self.provenance = path / "provenance.json"
        self.network = path / "network.json"
        self.events = path / "events.jsonl"
        self.samples = path / "samples.parquet"
        self.openmetrics = path / "metrics.openmetrics"
        self.summary = path / "summary.json"
        self.report = path / "report.html"
        self.model = path / "model.pt"
        """With checkpoint=last, once the training is complete."""
        self.out = path / "out"
        """Files that a user's script wrote, in one folder for each node."""
        self.capture = path / "capture"
        """Packets of the links, with capture=wan or capture=all."""
        self.first_attempt = path / "attempt-1"
        """Record of the first attempt, where a run was `invalid` for want of cores and was made once more."""
        self.logs = path / "logs"
        self.orchestrator_log = self.logs / "orchestrator.log"
        self.runtime = RUNTIME_ROOT / hashlib.sha256(self.run_id.encode()).hexdigest()[:12]
        """Short, since a Unix socket's path holds 107 bytes."""
        self.socket = self.runtime / "telemetry.sock"
        self.docker = self.runtime / "docker"
        """What the containers of the docker runtime are given: no mount of the run's own hides it from the host."""
        self.profiles = self.runtime / "profiles.json"
        """How long a step takes, for the run alone; it is kept in the provenance."""

    @classmethod
    def create(cls, root: Path, run_id: str) -> RunDir:
        """Make the directory; a second run within the same second gets a suffix."""
        for attempt in range(100):
            path = root / (run_id if attempt == 0 else f"{run_id}.{attempt}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            run = cls(path)
            run.logs.mkdir()
            return run
        raise FileExistsError(f"{root / run_id}: a hundred runs of this name exist")

    def log(self, node: str) -> Path:
        return self.logs / f"{node}.log"

    def read_events(self) -> Iterator[dict[str, Any]]:
        """Every whole line of the event file; what a kill or a full disk cut short is left out.

        Raises:
            ValueError: it is no regular file, or larger than any record.
        """
        try:
            file = open_regular(self.events)
        except FileNotFoundError:
            return
        with file:
            if (size_bytes := os.fstat(file.fileno()).st_size) > MAX_EVENTS_BYTES:
                raise ValueError(f"{self.events.name} is no record of ours ({size_bytes} bytes)")
            for line in whole_lines(file):
                try:
                    event = parse_json(line, strict=False)
                except ValueError:
                    continue
                if isinstance(event, dict) and "event" in event:
                    yield event

    def read_json(self, path: Path) -> Any:
        """Return the object of one of its files, None if there is none.

        Raises:
            ValueError: It is no regular file, too large, or holds no object.
        """
        try:
            return read_object(path)
        except FileNotFoundError:
            return None

    @property
    def is_own(self) -> bool:
        """True if the directory belongs to this process's user, or is not there."""
        return not self.path.exists() or self.path.lstat().st_uid == os.geteuid()

    @property
    def lock(self) -> Path:
        """Beside the runtime directory, which goes before the record is sealed; the lock goes after."""
        owner = self.path.stat().st_uid if self.path.exists() else os.geteuid()
        place = RUNTIME_ROOT if owner == os.geteuid() else runtime_root(owner)
        return place / f"{self.runtime.name}.lock"

    @contextlib.contextmanager
    def held(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the run's lock for a block; its end, or this process's, frees it. Yields whether it was had.

        Args:
            wait: `is_alive` of another process holds it for a moment, so a run waits for its own; without, another
                holder means False at once.

        A directory of another user's is never had: its lock lies where that user may write.
        """
        if not self.is_own:  # its owner could have replaced the lock by a link
            yield False
            return
        lock = self.lock
        make_runtime_root(lock.parent)
        with open_lock(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                lock.unlink(missing_ok=True)

    def is_alive(self) -> bool:
        """Whether some process holds the run's lock; who may not look must take it that one does."""
        try:
            with open_regular_bytes(self.lock) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True
        return False
