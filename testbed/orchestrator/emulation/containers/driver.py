"""Devices of this machine that nodes can be given, with the files of their driver; nodes share them round robin.

A node gets one device of the driver's, the control devices that all its users open, and the driver's libraries, each
read-only at its own path. Nothing else of its isolation changes.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.spec.run_spec import CUDA, NCCL, PROCESSOR, RunSpec
from testbed.orchestrator.machine.checks import PROBE_TIME_LIMIT_S, Check

DEV = Path("/dev")
SYSTEM = tuple(map(Path, ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")))
"""Folders that every loader searches. LD_LIBRARY_PATH must not name them: torch's own libraries would come after."""
FOLDERS = (*SYSTEM, *map(Path, ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib")))
"""Folders in which drivers put their libraries; what LD_LIBRARY_PATH and the loader's cache name comes before."""
NEEDED = "libcuda.so.1"
LIBRARIES = (
    "cuda",
    "cudadebugger",
    "nvidia-ml",
    "nvidia-cfg",
    "nvidia-ptxjitcompiler",
    "nvidia-nvvm",
    "nvidia-gpucomp",
)
"""Libraries that computing loads; others of the driver are for displays and video."""
CONTROL = ("nvidiactl", "nvidia-uvm")
"""Devices beside a node's own. Profilers have another one, `nvidia-uvm-tools`, which no node is given."""
_NUMBERED = re.compile(r"nvidia(\d+)")
_MODE = 0o666
"""Mode of a device in a node, whose processes run as the user `nobody`: the mode that the driver itself gives."""


@dataclass(frozen=True)
class DeviceNode:
    """A character device, by its path in a node."""

    path: str
    major: int
    minor: int

    def to_oci(self) -> dict[str, Any]:
        """Return the device as runc is to make it."""
        made = {"path": self.path, "type": "c", "major": self.major, "minor": self.minor}
        return {**made, "fileMode": _MODE, "uid": 0, "gid": 0}

    def rule(self) -> dict[str, Any]:
        """Return the rule of a cgroup that lets it be opened, and no other."""
        return {"allow": True, "type": "c", "major": self.major, "minor": self.minor, "access": "rw"}


@dataclass(frozen=True)
class Driver:
    """Devices and files that were found; empty where there is no driver."""

    devices: tuple[DeviceNode, ...] = ()
    control: tuple[DeviceNode, ...] = ()
    libraries: tuple[Path, ...] = ()
    """Paths at which the loader finds them, all in one folder; some are links."""

    @property
    def version(self) -> str | None:
        """Version of the driver, from its library's name; None if that has none."""
        for path in self.libraries:
            if path.name == NEEDED and (found := path.resolve().name.partition(".so.")[2]) not in ("", "1"):
                return found
        return None

    def of_rank(self, rank: int) -> tuple[DeviceNode, ...]:
        """Return the devices of a rank's node: one of its own or shared, and those of control."""
        return (self.devices[rank % len(self.devices)], *self.control)

    def facts(self, ranks: int) -> dict[str, Any]:
        """Return what a run's provenance says of it: each rank's device, and the driver's version."""
        if not self.devices:
            return {}
        return {"accelerators": [self.of_rank(rank)[0].path for rank in range(ranks)], "driver": self.version}

    def environment(self) -> dict[str, str]:
        """Return what a process needs so that its loader finds the libraries, and torch asks nothing before a fork."""
        if not self.libraries:
            return {}
        folder = self.libraries[0].parent
        named = {} if folder in SYSTEM else {"LD_LIBRARY_PATH": str(folder)}
        return {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", **named}


NO_DRIVER = Driver()
"""The driver of nodes that compute on the processor."""


def driver_of(spec: RunSpec) -> Driver:
    """Return the driver whose devices a run's nodes are given; an empty one where they compute on the processor."""
    return NO_DRIVER if spec.accelerator == PROCESSOR else find()


def find(dev: Path = DEV, folders: Sequence[Path] | None = None) -> Driver:
    """Return what is there.

    Args:
        dev: Folder of the devices; in a node they are in /dev.
        folders: Folders of libraries; None takes those that the loader searches here, and `FOLDERS`.
    """
    names = sorted(
        (path.name for path in dev.glob("nvidia*") if _NUMBERED.fullmatch(path.name)), key=lambda name: int(name[6:])
    )
    return Driver(
        devices=tuple(_nodes(dev, names)),
        control=tuple(_nodes(dev, CONTROL)),
        libraries=_libraries(_searched() if folders is None else folders),
    )


def _nodes(dev: Path, names: Sequence[str]) -> Iterator[DeviceNode]:
    for name in names:
        try:
            found = (dev / name).stat()
        except OSError:
            continue
        if stat.S_ISCHR(found.st_mode):
            yield DeviceNode(f"/dev/{name}", os.major(found.st_rdev), os.minor(found.st_rdev))


def _searched(environment: Mapping[str, str] = os.environ) -> list[Path]:
    named = [Path(path) for path in environment.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/")]
    return [*named, *_cached(), *FOLDERS]


def _cached() -> Iterator[Path]:
    """Yield the folder that the loader's cache names for the driver."""
    try:
        done = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=PROBE_TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    for line in done.stdout.splitlines():
        name, _, path = line.strip().partition(" => ")
        if name.startswith(f"{NEEDED} ") and path:
            yield Path(path).parent


def _libraries(folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return the libraries of the first folder that has the driver's; those of two drivers do not go together."""
    for folder in (path.resolve() for path in folders):
        if (folder / NEEDED).is_file():
            found = (path for name in LIBRARIES for path in sorted(folder.glob(f"lib{name}.so*")))
            return tuple(path for path in found if path.is_file())
    return ()


def check(accelerator: str, workers: int, driver: Driver | None = None) -> Check:
    """Ask whether this machine has what nodes with accelerators need.

    Args:
        accelerator: Value of the key; that of the processor asks whether there is a device at all, and needs none.
        driver: What was found; None looks.
    """
    needed = accelerator != PROCESSOR
    driver = find() if driver is None else driver
    lacks = dict(_lacks(driver, accelerator, workers))
    found = f"{len(driver.devices)} device(s), driver {driver.version or 'of an unknown version'}"
    meaning = f"accelerator={accelerator} gives nodes devices" if needed else "with one, accelerator=cuda trains on it"
    cure = "; ".join([*dict.fromkeys(lacks.values()), "or leave accelerator out"])
    return Check("accelerator", needed, not lacks, "; ".join(lacks) or found, meaning, cure)


def _lacks(driver: Driver, accelerator: str, workers: int) -> Iterator[tuple[str, str]]:
    """Yield what is missing, and what to do about it."""
    found, install = len(driver.devices), "install the driver, so that nvidia-smi works"
    if not found:
        yield "no /dev/nvidia0 or other device", install
    there = {node.path for node in driver.control}
    if lacking := [f"/dev/{name}" for name in CONTROL if f"/dev/{name}" not in there]:
        yield f"no {' and no '.join(lacking)}", "run nvidia-modprobe -u as root, which makes them"
    if not driver.libraries:
        searched = "LD_LIBRARY_PATH, the loader's cache and " + ", ".join(map(str, FOLDERS))
        yield f"no {NEEDED} in {searched}", install
    if accelerator == NCCL and 0 < found < max(2, workers):
        fewer = f"at most {found} workers, " if found > 1 else ""
        yield (
            f"NCCL takes no two ranks on one device: {workers} workers, {found} device(s)",
            f"use accelerator={CUDA}, whose ranks share a device, {fewer}or more devices",
        )
