"""What this machine lets a run do: all of it to root, less to a user who is root of a user namespace alone.

With `--rootless` the run's first process enters a user namespace of its own together with the others. There it makes
network namespaces, links, rates, queues and mounts as root does. What the kernel keeps for root of the machine itself
is lost, and said: at the start, in the provenance, and beside the verdict.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import OWN_UID, OWNER, RUNTIME_ROOT
from testbed.orchestrator.machine.limits import FIFO_PRIORITY

ROOTLESS = "rootless"
"""What a run with less than root's rights is scheduled as, in its first event."""
RUNC_STATE = Path("/run/runc") if OWN_UID == 0 else RUNTIME_ROOT / "runc"
NICE_OF_IMPORTS = 5
"""While workers' imports are made: the links are measured meanwhile."""
NICE_OF_WORKERS = 6
"""In place of processor shares: weighs 272 where everybody else weighs 1024, as 256 shares do."""
_NAMESPACES = ("--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--mount", "--ipc", "--uts")
_AUTOGROUP_PATIENCE_S = 2.0
_BUFFERS = "/proc/sys/net/core/rmem_max"


@dataclass(frozen=True)
class Rights:
    """Those of one run."""

    rootless: bool = False

    def unshare(self) -> list[str]:
        """The command that starts a run's first process; what to start follows."""
        return ["unshare", *(("--user", "--map-root-user") if self.rootless else ()), *_NAMESPACES]

    def environment(self) -> dict[str, str]:
        """What the run's own processes have more in theirs."""
        if not self.rootless:
            return {}
        # iptables' older kind locks a file in /run otherwise, which is root's; its tables are of one namespace
        return {OWNER: str(os.geteuid()), "XTABLES_LOCKFILE": os.devnull}

    def runc(self) -> list[str]:
        """The program and its options."""
        return ["runc", "--root", str(RUNC_STATE), *(["--rootless=true"] if self.rootless else [])]

    def limits(
        self, name: str, resources: Mapping[str, Any], opened: Sequence[Mapping[str, Any]] = ()
    ) -> dict[str, Any]:
        """Return of a container's `linux` section its cgroup and what that limits.

        Args:
            opened: Rules of devices that may be opened beside those that runc gives every container.
        """
        devices = [{"allow": False, "access": "rwm"}, *opened]
        if self.rootless:
            return {"resources": {"devices": devices}}
        return {"cgroupsPath": f"/{name}", "resources": {"devices": devices, **resources}}

    @property
    def nice_of_imports(self) -> int:
        """0 where who was nice once must stay so."""
        return 0 if self.rootless else NICE_OF_IMPORTS

    def give_way(self, pid: int) -> None:
        """Have a worker yield to delay lines, probes and collector, where no cgroup does it."""
        if not self.rootless:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or is nicer already
            os.setpriority(os.PRIO_PROCESS, pid, NICE_OF_WORKERS)
        _weigh_session(pid)

    def lost(self) -> list[str]:
        """What root has and this run has not, each with what follows from it."""
        if not self.rootless:
            return []
        megabytes = int(Path(_BUFFERS).read_text()) / 1e6
        lost = [
            "limits of memory, processes and processor shares of nodes: a worker may take all that the user may, and"
            f" is nice {NICE_OF_WORKERS} in place of having fewer shares",
            "a user of their own for workers: they are the caller, without capabilities, in namespaces of their own",
            "processor time, throttling and memory of each node in the record",
            f"socket buffers beyond net.core.rmem_max ({megabytes:.1f} MB) for bursts and the delay shaper's queue",
        ]
        most = resource.getrlimit(resource.RLIMIT_RTPRIO)[0]
        if most != resource.RLIM_INFINITY and most < FIFO_PRIORITY:
            lost.append(
                "real-time priority of shapers and probes, which take short slices where the kernel has them: their"
                " lateness is measured, and enters the verdict"
            )
        return lost


OF_ROOT = Rights()


def _weigh_session(pid: int) -> None:
    """Where the kernel groups processes by session, niceness counts within a session alone; the group has its own."""
    deadline_s = time.monotonic() + _AUTOGROUP_PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(NICE_OF_WORKERS))
        except BlockingIOError:  # ten changes a second on the whole machine
            time.sleep(0.02)
            continue
        except OSError:  # no such groups, or it has ended
            return
        return
