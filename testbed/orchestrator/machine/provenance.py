"""Where a run's numbers come from: code, machine, packages, settings."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from testbed.core.errors import MachineError
from testbed.core.record.used_files import CODE
from testbed.orchestrator.machine.clone import CLONE

_SIMULATOR = ("testbed/analysis/simulator", "experiments/calibration")
_PACKAGES = (
    "torch",
    "numpy",
    "bayesian-optimization",
    "pysz",
    "zfpy",
    "zstandard",
    "cryptography",
    "blosc2",
    "pillow",
    "scikit-learn",
    "NetfilterQueue",
    "pyroute2",
    "hydra-core",
    "mininet",
)
_SETTLED_S = 2.0
"""Age from which on a file's times tell whether it has changed: clocks of file systems tick in milliseconds."""


def code_hash(clone: Path = CLONE, *, simulated: bool = False) -> str:
    """Return the digest of every source file that a result can depend on, 16 hexadecimal digits.

    Files are read again only if one of them has another time, size or inode.

    Args:
        simulated: True for a simulated result, which depends on the simulator and its constants too.
    """
    found: list[tuple[str, os.stat_result]] = []
    for folder in (*CODE, *(_SIMULATOR if simulated else ())):
        found += sorted(_files(str(clone / folder), (".py", ".json") if folder in _SIMULATOR else (".py",)))
    stats = tuple((path, one.st_mtime_ns, one.st_ctime_ns, one.st_size, one.st_ino) for path, one in found)
    newest_s = max((max(mtime, ctime) for _, mtime, ctime, _, _ in stats), default=0) / 1e9
    read = _digest if time.time() - newest_s > _SETTLED_S else _digest.__wrapped__
    return read(str(clone), stats)


def _files(folder: str, kinds: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False):
                yield from _files(one.path, kinds) if one.name != "__pycache__" else ()
            elif one.name.endswith(kinds):
                yield one.path, one.stat()


@functools.lru_cache(maxsize=8)
def _digest(clone: str, stats: tuple[tuple[str, int, int, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, *_ in stats:
        digest.update(os.path.relpath(path, clone).encode() + b"\0" + Path(path).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def require_unchanged(since: str, *, simulated: bool = False) -> None:
    """Before each of several runs, which are to be of one code; a record is of the code that it was begun with.

    Args:
        since: `code_hash` when the call began.

    Raises:
        MachineError: somebody has edited it since.
    """
    if (now := code_hash(simulated=simulated)) != since:
        raise MachineError(
            f"the code in {CLONE} was {since} when this call began, and is {now} now: runs of both would not compare;"
            " call again, and earlier runs are repeated, or bring the code back to what it was"
        )


_GIT = ("git", "--no-optional-locks", "-c", f"safe.directory={CLONE}")
"""With the clone marked safe, since root may not own it."""


def _said(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, cwd=CLONE, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return None


def _clock_source() -> str | None:
    """Of a virtual machine on which it is not a fast one, delays are coarse."""
    try:
        return Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    except OSError:
        return None


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def commit() -> str | None:
    """Return this clone's commit, with `+` behind it where files differ from it; None where git knows none."""
    found, changes = (_said(*_GIT, *words) for words in (("rev-parse", "HEAD"), ("status", "--porcelain")))
    return f"{found}+" if found and changes else found


def collect(runtime: str = "runc") -> dict[str, Any]:
    """Return the provenance of this machine and clone, which all runs on it share."""
    changes = _said(*_GIT, "status", "--porcelain")
    return {
        "commit": _said(*_GIT, "rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
        "code_hash": code_hash(),
        "kernel": platform.release(),
        "system": platform.platform(),
        "cpu": cpu_model(),
        "clock_source": _clock_source(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": sys.version.split()[0],
        "packages": _versions(),
        "iproute2": _said("ip", "-V"),
        "docker": _said("docker", "version", "--format", "{{.Server.Version}}") if runtime == "docker" else None,
        "runc": (_said("runc", "--version") or "").splitlines()[:1],
    }
