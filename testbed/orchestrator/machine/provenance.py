"""Where a run's numbers come from: code, machine, packages, settings."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from testbed.core.errors import MachineError
from testbed.orchestrator.machine.clone import CLONE

_CODE = ("testbed/core", "testbed/worker", "testbed/orchestrator", "compressors", "topologies")
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


def code_hash(clone: Path = CLONE, *, simulated: bool = False) -> str:
    """Of every source file that a result can depend on; of a simulated one, with the simulator and its constants."""
    digest = hashlib.sha256()
    for folder in (*_CODE, *(_SIMULATOR if simulated else ())):
        kinds = ("*.py", "*.json") if folder in _SIMULATOR else ("*.py",)
        for path in sorted(path for kind in kinds for path in (clone / folder).rglob(kind)):
            digest.update(str(path.relative_to(clone)).encode() + b"\0" + path.read_bytes() + b"\0")
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
            " call again, and what was made before is made anew, or bring the code back to what it was"
        )


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


def collect(runtime: str = "runc") -> dict[str, Any]:
    """What does not depend on the run; `git` asked with the clone marked safe, since root may not own it."""
    git = ("git", "--no-optional-locks", "-c", f"safe.directory={CLONE}")
    changes = _said(*git, "status", "--porcelain")
    return {
        "commit": _said(*git, "rev-parse", "HEAD"),
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
