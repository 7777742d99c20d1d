"""The sandbox of a run: what all its containers share, which none can write to, and what each has of its own."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.core.errors import MachineError
from testbed.core.record.telemetry import RENDEZVOUS_IN_NODE, SOCKET_IN_NODE, STORE_IN_NODE
from testbed.orchestrator.emulation.containers.driver import NO_DRIVER, DeviceNode, Driver
from testbed.orchestrator.emulation.containers.node_disk import OUT_IN_NODE, NodeDisk
from testbed.orchestrator.emulation.containers.oci_mounts import HARDENED, SHM_BYTES, bind, mount, own_mounts
from testbed.orchestrator.emulation.containers.root_filesystem import KEPT, BoundRoot, MaskedRoot
from testbed.orchestrator.machine.rights import OF_ROOT, Rights

NOBODY = 65534
MAX_CPU_SHARES, ALL_CPU_SHARES, MIN_CPU_SHARES = 256, 1024, 2
"""Shares of one container, of all, and the least that the kernel takes; every other process has 1024.

Delay line, probes and collector come first, however many workers there are."""
STORE_BYTES, MAX_STORED_FILES = 1 << 24, 10_000
MAX_MODEL_BYTES = 1 << 33
"""A bound, not memory: what is written counts against the writer's."""
_OF_NODE = tuple(map(Path, ("/", "/usr", "/tmp", "/dev", "/proc", "/sys")))
"""Directories that each node has of its own."""


@dataclass(frozen=True)
class Sandbox:
    """Parts that all containers of a run share, and places for what each has of its own."""

    run_id: str
    clone: Path
    runs: Path
    socket: Path
    work: Path
    """A directory of the run's own mount namespace for bundles and the root."""
    memory_bytes: int
    """Most memory of one container, but of those in `limits`."""
    seen: tuple[Path, ...] = ()
    """Directories and files beside the clone and the interpreter's."""
    working_directory: Path | None = None
    """Directory of a user's script."""
    hosts: str = ""
    """Lines of /etc/hosts: the nodes by name."""
    containers: int = 1
    """Number of containers that share the cores."""
    keeps_model: bool = False
    """True if a model, or a server's state, is left in its node's directory, which has room for it then."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Most memory of the containers of these nodes, in bytes."""
    rights: Rights = OF_ROOT
    driver: Driver = NO_DRIVER
    """Devices that nodes share round robin, and their driver's files; empty where nodes have none."""
    nodes: tuple[str, ...] = ()
    """All nodes in the order of their ranks."""

    @property
    def cpu_shares(self) -> int:
        return max(MIN_CPU_SHARES, min(MAX_CPU_SHARES, ALL_CPU_SHARES // self.containers))

    @property
    def max_file_bytes(self) -> int:
        """Largest file that a process of a container may write."""
        return MAX_MODEL_BYTES if self.keeps_model else SHM_BYTES

    def bound_back(self) -> list[Path]:
        """Directories and files seen read-only at their own path."""
        named = (Path(path) for path in os.environ.get("PYTHONPATH", "").split(":") if path)
        asked = [self.clone, Path(sys.prefix), *self.seen, *named]
        found: list[Path] = []
        for path in (p.resolve() for p in asked):
            is_there = path.is_dir() or path.is_file()
            if is_there and not any(path.is_relative_to(other) for other in found) and path not in _OF_NODE:
                found.append(path)
        return found

    def devices(self, node: str) -> tuple[DeviceNode, ...]:
        """Return the devices that a node is given."""
        return self.driver.of_rank(self.nodes.index(node)) if self.driver.devices else ()

    def user(self) -> tuple[int, int]:
        """Return (uid, gid): nobody; the clone's owner where a umask keeps it from everybody else; rootless the caller.

        Raises:
            MachineError: that owner is root, who would own too much of what is seen.
        """
        if self.rights.rootless:
            return 0, 0
        found = self.clone.stat()
        if found.st_mode & 0o005 == 0o005:
            return NOBODY, NOBODY
        if found.st_uid == 0:
            raise MachineError(
                f"the clone {self.clone} is root's and closed to others, so workers, who are nobody, cannot read it:"
                f" chmod -R o+rX {self.clone}"
            )
        return found.st_uid, found.st_gid

    def hidden(self) -> list[Path]:
        """Return directories of runs that a node would see, and must not: in what is bound back, or in the root."""
        seen = self.bound_back()
        root = os.stat("/").st_dev
        found = dict.fromkeys((self.runs, self.clone / "runs"))
        return [
            path
            for path in found
            if path.is_dir()
            # of what is mounted below the root, a container sees only what is bound back
            and ((path.parts[1] in KEPT and path.stat().st_dev == root) or any(path.is_relative_to(p) for p in seen))
        ]

    def mounts(self, node: str, disk: NodeDisk | None = None) -> list[dict[str, Any]]:
        """Return all mounts of a node."""
        mounts = [*own_mounts(), *(bind(str(path), str(path), "ro") for path in self.bound_back())]
        mounts += [bind(str(path), str(path.resolve()), "ro") for path in self.driver.libraries]
        if disk is not None and self.working_directory is not None:
            mounts += [bind(target, source) for target, source in disk.mounts(self.working_directory)]
        mounts += [mount(str(runs), "tmpfs", "tmpfs", *HARDENED, "ro", "size=4k") for runs in self.hidden()]
        return [
            *mounts,
            bind(SOCKET_IN_NODE, str(self.socket), "ro"),  # its times and mode, that is: all nodes have the same one
            bind(RENDEZVOUS_IN_NODE, str(self.rendezvous(node)), "ro"),
            bind(STORE_IN_NODE, str(self.store(node)), "noexec"),
        ]

    @functools.cached_property
    def root(self) -> MaskedRoot:
        """Root file system of all containers, which none can write to; made once."""
        files = [*self.bound_back(), *self.driver.libraries, Path(SOCKET_IN_NODE), Path(RENDEZVOUS_IN_NODE)]
        kind = BoundRoot if self.rights.rootless else MaskedRoot
        return kind(self.work, files, self.hosts, directories=[Path(STORE_IN_NODE), Path(OUT_IN_NODE)])

    def rendezvous(self, node: str) -> Path:
        """Return the socket of a node at the run's rendezvous, as the run sees it."""
        return self.socket.parent / f"{node}.meet"

    def store(self, node: str) -> Path:
        """Return the directory of a node that outlives its processes, as the run sees it."""
        return self.work / "stores" / node

    def make_store(self, node: str) -> None:
        """Make a node's directory, a file system of its own: nodes share no room either."""
        store = self.store(node)
        if store.exists():
            return
        store.mkdir(parents=True)
        room_bytes = STORE_BYTES + (MAX_MODEL_BYTES if self.keeps_model else 0)
        options = f"nosuid,nodev,noexec,mode=1777,size={room_bytes},nr_inodes={MAX_STORED_FILES}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "store", str(store)], check=True)

    def empty_stores(self) -> None:
        """Remove what nodes of a pilot have left."""
        for path in self.work.glob("stores/*/*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def disk(self, node: str) -> NodeDisk | None:
        """Return a new disk of `node`; None where no script runs."""
        if (place := self.working_directory) is None:
            return None
        return NodeDisk(node, self.work, place, self.user(), rootless=self.rights.rootless)
