"""Removes what a run left, and nothing else: whatever bears its run id.

Namespaces, devices and Mininet's shells go with the run's first process. What the kernel does not take are runc's
state, docker's containers and volumes, cgroups and the runtime directory; processes are looked for by LONGHAUL_RUN in
their environment, in case one outlived its pid namespace's end. Standard library only: the watcher starts fast.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.orchestrator.machine.docker_client import Leftovers
from testbed.orchestrator.machine.rights import RUNC_STATE

CGROUP_ROOT = Path("/sys/fs/cgroup")
_PATIENCE_S = 20.0
"""Longest wait for killed processes to be gone: on a busy machine one of few shares took more than two seconds."""
T = TypeVar("T")


def processes_of(run_id: str) -> Iterator[int]:
    """Every process but this one that has LONGHAUL_RUN=<run id> in its environment."""
    wanted = f"LONGHAUL_RUN={run_id}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                yield int(entry)


def containers_of(run_id: str) -> list[str]:
    prefix = f"longhaul-{run_id}-"
    return sorted(p.name for p in RUNC_STATE.glob(f"{prefix}*")) if RUNC_STATE.is_dir() else []


def cgroups_of(run_id: str) -> list[Path]:
    """In every hierarchy, deepest first. Containers' cgroups lie at the root of each (v1) or of the one (v2)."""
    found: list[Path] = []
    for pattern in (f"longhaul-{run_id}-*", f"*/longhaul-{run_id}-*"):
        for top in CGROUP_ROOT.glob(pattern):
            found += [top, *(Path(path) for path, _, _ in os.walk(top))]
    return sorted(set(found), key=lambda p: len(p.parts), reverse=True)


def leftovers(run_id: str) -> list[str]:
    """What is still there, one line each; empty if the run left nothing."""
    return [
        *(f"process {pid}" for pid in processes_of(run_id)),
        *(f"container {name}" for name in containers_of(run_id)),
        *Leftovers(run_id, RunDir(Path(run_id)).runtime).find(),
        *(f"cgroup {path}" for path in cgroups_of(run_id)),
        *([f"directory {runtime}"] if (runtime := RunDir(Path(run_id)).runtime).exists() else []),
    ]


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _repeat(find: Callable[[], list[T]], remove: Callable[[T], None]) -> None:
    """Until nothing is found or patience ends: a process takes a moment to die, its cgroup another to be empty."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while found := find():
        for one in found:
            with contextlib.suppress(OSError):
                remove(one)
        if time.monotonic() > deadline_s:
            return
        time.sleep(0.02)


def remove_leftovers(run_id: str) -> list[str]:
    """Remove everything of a run; return what could not be removed."""
    if not RUN_ID.match(run_id):
        raise ValueError(f"{run_id!r} is not a run id")
    _repeat(lambda: list(processes_of(run_id)), _kill)
    for name in containers_of(run_id):
        # not `runc delete`: the state holds process ids of the run's own pid namespace, which mean others here
        shutil.rmtree(RUNC_STATE / name, ignore_errors=True)
    runtime = RunDir(Path(run_id)).runtime
    docker = Leftovers(run_id, runtime)
    docker.remove()
    _repeat(lambda: cgroups_of(run_id), Path.rmdir)
    held = docker.find()
    if not held:  # or the daemon's name, which lies there, would be lost for the next attempt
        shutil.rmtree(runtime, ignore_errors=True)
    return leftovers(run_id)
