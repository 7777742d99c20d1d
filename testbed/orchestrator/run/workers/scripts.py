"""Processes of a user's script on all nodes, and which of them a failed run is to name."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from testbed.core.record.events.run import ScriptEnd, Used
from testbed.orchestrator.config.programs import marks_name
from testbed.orchestrator.emulation.containers.docker_container import DockerContainer
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.run.workers.attended import AttendedProcess
from testbed.orchestrator.run.workers.listeners import parent_pid
from testbed.orchestrator.run_store.used import used_by_script

_GO = "go"
"""File in a node's directory that its first process waits for."""
_POLL_S = 0.05


class Scripts:
    """One process a node.

    Args:
        store: Returns the directory of a node, as the run sees it.
    """

    def __init__(self, store: Callable[[str], Path]) -> None:
        self._store = store
        self._ranks: dict[str, int] = {}
        self._containers: dict[str, Container | DockerContainer] = {}
        self._processes: dict[str, AttendedProcess] = {}

    def attend(self, container: Container | DockerContainer, rank: int) -> AttendedProcess:
        """Return the process of a container that was started."""
        node = container.node
        self._ranks[node], self._containers[node] = rank, container
        process = self._processes[node] = AttendedProcess(container, self._store(node) / marks_name(rank))
        return process

    def go(self) -> None:
        """Let the script start on all nodes."""
        for node in self._ranks:
            flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with contextlib.suppress(OSError):  # the node itself put something there
                os.close(os.open(self._store(node) / _GO, flags, 0o644))

    def node_of(self, pid: int) -> str | None:
        """Return the node whose script has this process id in the run's namespace; a child of the script is none."""
        parent = parent_pid(pid)
        return next((node for node, one in self._processes.items() if parent is not None and one.pid == parent), None)

    def ends(self) -> Iterator[ScriptEnd]:
        """Yield how each script has ended."""
        for node, process in sorted(self._processes.items(), key=lambda item: self._ranks[item[0]]):
            code = process.exit_code()
            how = "was still running" if code is None else self._containers[node].ended(code)
            yield ScriptEnd(rank=self._ranks[node], node=node, joined=process.has_joined, how=how)

    def used(self, since_unix_s: float) -> Iterator[Used]:
        """Yield which modules each script had loaded at its end.

        Args:
            since_unix_s: Begin of the run; what was changed later is not what the script had.
        """
        for node, process in self._processes.items():
            listed = self._store(node) / f"{marks_name(self._ranks[node])}.modules"
            has_completed = process.exit_code() == 0
            yield used_by_script(self._ranks[node], listed, has_completed=has_completed, since_unix_s=since_unix_s)

    def blame(
        self,
        dead: Mapping[str, int],
        is_away: Callable[[str], bool],
        end_of: Callable[[str, int], str],
        *,
        patience_s: float,
    ) -> str:
        """Return the fault of a failed run: the worker that left first, with its status, and not its victims.

        Args:
            dead: Exit codes of those that ended without completing, by node.
            is_away: True for a node that an event took away.
            end_of: Words for the end of a node's script with an exit code.
            patience_s: Wall seconds that the first one to leave has to end.
        """
        now_s = time.monotonic()
        left: dict[str, float] = dict.fromkeys(dead, now_s)
        for node, process in self._processes.items():
            if not is_away(node) and (left_s := process.left_s) is not None:
                left[node] = left_s
        first = min(left, key=lambda node: (left[node], self._ranks[node]))
        while (code := self._processes[first].exit_code()) is None and time.monotonic() < now_s + patience_s:
            time.sleep(_POLL_S)
        if code:
            return f"{self._named(first)} {end_of(first, code)}"
        failed = min(dead, key=lambda node: (left[node], self._ranks[node]))
        how = "had left its process group and still ran" if code is None else "had ended before it, with status 0"
        return f"{self._named(failed)} {end_of(failed, dead[failed])}; {self._named(first)} {how}"

    def _named(self, node: str) -> str:
        return f"worker {self._ranks[node]} on {node}"
